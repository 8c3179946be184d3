// An agent in TypeScript: two questions, one conversation, all of it streamed.
// node agent.js NUMBER, with OPENAI_BASE_URL and OPENAI_API_KEY in the environment.
import OpenAI from "openai";
import type { ChatCompletionMessageParam, ChatCompletionTool } from "openai/resources";

const lookUp: ChatCompletionTool = {
  type: "function",
  function: {
    name: "look_up",
    description: "Look an agent up.",
    parameters: {
      type: "object",
      properties: { who: { type: "string" }, times: { type: "number" } },
      required: ["who", "times"],
    },
  },
};

async function play(number: string): Promise<string> {
  const client = new OpenAI();
  const messages: ChatCompletionMessageParam[] = [];
  let answer = "";
  for (const question of ["where is", "and again"]) {
    messages.push({ role: "user", content: `${question} agent ${number}?` });
    for (let calling = true; calling; ) {
      const stream = client.chat.completions.stream({ model: "gpt-5", messages, tools: [lookUp] });
      const message = (await stream.finalChatCompletion()).choices[0]!.message;
      const calls = (message.tool_calls ?? []).filter((call) => call.type === "function");
      // Parsed and spelled again, as an agent does that keeps its history as objects.
      const spelled = calls.map((call) => ({
        ...call,
        function: { ...call.function, arguments: JSON.stringify(JSON.parse(call.function.arguments)) },
      }));
      messages.push({ ...message, ...(calls.length ? { tool_calls: spelled } : {}) });
      for (const call of calls) {
        const { who } = JSON.parse(call.function.arguments) as { who: string };
        messages.push({ role: "tool", tool_call_id: call.id, content: `at ${who}` });
      }
      calling = calls.length > 0;
      answer = message.content ?? "";
    }
  }
  return answer;
}

console.log(await play(process.argv[2]!));
