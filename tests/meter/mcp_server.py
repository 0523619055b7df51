"""A tool server that speaks MCP on its pipes, without any library; it writes down what it was asked.

python mcp_server.py LOG
"""

from __future__ import annotations

import json
import sys
from typing import Any


def say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def call(message: dict[str, Any], count: int) -> None:
    name, arguments = message["params"]["name"], message["params"].get("arguments") or {}
    token = (message["params"].get("_meta") or {}).get("progressToken")
    if name == "die":
        sys.exit(3)
    if name == "hang":
        return
    if name == "fail":
        say({"id": message["id"], "error": {"code": -32602, "message": "no such thing"}})
        return
    if token is not None:
        for step in (1, 2):
            say({"method": "notifications/progress", "params": {"progressToken": token, "progress": step, "total": 2}})
    text = f"{arguments.get('city')}: {count}"
    say({"id": message["id"], "result": {"content": [{"type": "text", "text": text}], "isError": False}})


def main() -> None:
    count = 0
    with open(sys.argv[1], "a", encoding="utf-8") as log:
        for line in sys.stdin:
            message = json.loads(line)
            method = message.get("method")
            log.write(f"{method}\n")
            log.flush()
            if method == "initialize":
                info = {"name": "weather", "version": "1"}
                result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
                say({"id": message["id"], "result": result})
            elif method == "tools/list":
                schema = {"type": "object", "properties": {"city": {"type": "string"}}}
                tools = [{"name": name, "inputSchema": schema} for name in ("weather", "fail", "hang", "die")]
                say({"id": message["id"], "result": {"tools": tools}})
            elif method == "tools/call":
                count += 1
                call(message, count)
            elif message.get("id") is not None and method:
                say({"id": message["id"], "error": {"code": -32601, "message": "Method not found"}})


main()
