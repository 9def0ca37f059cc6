import { openToolCalls, type ToolCallsDeps } from "./calls.ts";
import { openRegistry, type RegistryDeps } from "./registry.ts";

export type { RegisteredAgent } from "./registry.ts";
export type { CallableRow, ToolRow } from "./rows.ts";
export type { ToolOutcome } from "./rules.ts";

/** Tools that agents register, and calls to them. */
export const openAgentTools = (deps: RegistryDeps & ToolCallsDeps) => ({
  ...openRegistry(deps),
  ...openToolCalls(deps),
});

export type ToolsOfAgents = ReturnType<typeof openAgentTools>;
