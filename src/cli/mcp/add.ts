import type { Command } from "commander";
import { addCommon } from "../command.ts";
import type { Io } from "../io.ts";
import type { McpFlags } from "./command.ts";

/** `svc mcp`; what it needs is loaded when it runs. */
export function addMcp(program: Command, io: Io): void {
  const command = program
    .command("mcp")
    .description(
      "A server for clients of the Model Context Protocol: it reads, and changes only what it may.",
    )
    .option("--allow-writes", "Offer the tools that change things.")
    .option("--server-url <url>", "The server [the profile's, else http://127.0.0.1:9123].")
    .option("--api-key <key>", "The key [SVC_API_KEY]; others on this machine see arguments.")
    .option("--static-only", "Without the tools of agents.")
    .option("--transport <name>", "stdio, or streamable-http.", "stdio")
    .option("--host <address>", "A loopback address, for HTTP.", "127.0.0.1")
    .option("--port <n>", "The port, for HTTP; 0 takes a free one.", "0")
    .option("--port-file <file>", "Where the port is written.");
  addCommon(command).action(async () => {
    const { runMcp } = await import("./command.ts");
    await runMcp(command.optsWithGlobals<McpFlags>(), io);
  });
}
