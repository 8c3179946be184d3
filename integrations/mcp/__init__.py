"""MCP: train a model to use the tools of a server, from one command or a few lines."""

from art_core.errors import ToolServerDiedError, ToolServerError, ToolServerStartError
from integrations.mcp.agent import Actor, MCPAgent, Outcome
from integrations.mcp.connecting import Timeouts, connect
from integrations.mcp.connection import Answers, Connection
from integrations.mcp.demonstrating import Teacher, scripted, warm_start
from integrations.mcp.loop import AgentRun, Limits
from integrations.mcp.mcp_json import load_mcp_json
from integrations.mcp.pool import Isolation, ServerPool, Workspace
from integrations.mcp.scenarios import (
    GeneratedScenarioCollection,
    MCPResource,
    MCPTool,
    generate_scenarios,
)
from integrations.mcp.servers import HttpServer, Server, StdioServer
from integrations.mcp.toolbox import Toolbox, ToolCall
from integrations.mcp.tools import tools_as_openai
from integrations.mcp.tracing import trace

__all__ = [
    "Actor",
    "AgentRun",
    "Answers",
    "Connection",
    "GeneratedScenarioCollection",
    "HttpServer",
    "Isolation",
    "Limits",
    "MCPAgent",
    "MCPResource",
    "MCPTool",
    "Outcome",
    "Server",
    "ServerPool",
    "StdioServer",
    "Teacher",
    "Timeouts",
    "ToolCall",
    "ToolServerDiedError",
    "ToolServerError",
    "ToolServerStartError",
    "Toolbox",
    "Workspace",
    "connect",
    "generate_scenarios",
    "load_mcp_json",
    "scripted",
    "tools_as_openai",
    "trace",
    "warm_start",
]
