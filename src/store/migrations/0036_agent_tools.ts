import type { StoreEngine } from "../store.ts";

/** Agents with the tools that they offer, which are called back at their URL. */
export const agentTools = {
  version: 36,
  name: "agent_tools",
  compatible: true,
  statements: (_engine: StoreEngine): string[] => [
    // `sealed` is the secret that signs calls to the agent.
    `CREATE TABLE agents (
      environment_id TEXT NOT NULL, name TEXT NOT NULL, callback_url TEXT NOT NULL, sealed TEXT NOT NULL,
      registered_at BIGINT NOT NULL, PRIMARY KEY (environment_id, name))`,
    // `bytes` are those of its schema and description.
    `CREATE TABLE agent_tools (
      environment_id TEXT NOT NULL, qualified_name TEXT NOT NULL, agent_name TEXT NOT NULL, description TEXT NOT NULL,
      input_schema TEXT NOT NULL, required_scopes TEXT NOT NULL, timeout_ms BIGINT NOT NULL, bytes BIGINT NOT NULL,
      PRIMARY KEY (environment_id, qualified_name))`,
    `CREATE INDEX agent_tools_agent ON agent_tools (environment_id, agent_name)`,
  ],
};
