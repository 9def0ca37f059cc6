import { type Breathe, breather } from "../../../kit/breather.ts";
import type { Instant } from "../../../kit/clock.ts";
import { Fault, invalid } from "../../../kit/fault.ts";
import { compileInSteps, SchemaError } from "../../../kit/json-schema/json-schema.ts";
import { pageOf, readNameCursor, writeNameCursor } from "../../../kit/page.ts";
import type { Basics, Session } from "../../../store/store.ts";
import type { Keyring } from "../../access/keyring/service.ts";
import { agentSecretBytes, agentsMax, toolPageMax, toolsBytesMax, toolsMax } from "./limits.ts";
import * as rows from "./rows.ts";
import * as rules from "./rules.ts";

export interface RegistryDeps extends Basics<"store" | "clock" | "ids"> {
  keyring: Pick<Keyring, "seal" | "writeSealed">;
  /** Locks the environment against deletion until the transaction ends; throws `not_found` if it is gone. */
  shareEnvironment: (session: Session, environmentId: string) => Promise<void>;
}

export interface RegisteredAgent {
  /** Signs the calls to the agent from now on; shown only here. */
  secret: string;
  names: string[];
  registeredAt: Instant;
}

/** What an agent's secret is sealed for: the sealed text opens in no other row. */
export const placeOf = ({ environment_id, name }: rows.AgentKey): string => `agent/${environment_id}/${name}`;

async function requireSchema(field: string, text: string, breathe: Breathe): Promise<void> {
  try {
    for (const _step of compileInSteps(text)) await breathe();
  } catch (error) {
    throw error instanceof SchemaError ? invalid(field, error.message) : error;
  }
}

const tooMany = (message: string) =>
  new Fault("resource_exhausted", message, { field: "tools", code: "LIMIT_EXCEEDED" });

function requireRoom({ agents, tools, bytes }: { agents: number; tools: number; bytes: number }): void {
  if (agents > agentsMax) throw tooMany(`an environment has at most ${agentsMax} agents`);
  if (tools > toolsMax) throw tooMany(`an environment has at most ${toolsMax} tools of agents`);
  if (bytes > toolsBytesMax)
    throw tooMany(
      `schemas and descriptions of an environment's tools have at most ${toolsBytesMax} bytes together`,
    );
}

/** Agents and their tools as callers register and list them. */
export function openRegistry({ store, clock, ids, keyring, shareEnvironment }: RegistryDeps) {
  return {
    /** Replaces what the agent had, its secret too. */
    async register(environmentId: string, input: rules.AgentInput): Promise<RegisteredAgent> {
      rules.requireRegistrable(input);
      const breathe = breather(clock, environmentId);
      for (const [at, { inputSchemaJson }] of input.tools.entries())
        if (inputSchemaJson !== "")
          await requireSchema(`tools[${at}].inputSchemaJson`, inputSchemaJson, breathe);
      const key = { environment_id: environmentId, name: input.agentName };
      const tools = input.tools.map((tool) => ({
        qualified_name: rules.qualifiedName(input.agentName, tool.name),
        agent_name: input.agentName,
        description: tool.description,
        input_schema: tool.inputSchemaJson,
        required_scopes: [...new Set(tool.requiredScopes)].join(","),
        timeout_ms: tool.timeoutMs,
      }));
      const names = tools.map(({ qualified_name }) => qualified_name);
      tools.sort((a, b) => (a.qualified_name < b.qualified_name ? -1 : 1));
      const secret = ids.secret(agentSecretBytes);
      const registeredAt = clock.now();
      await keyring.writeSealed(async (session) => {
        await shareEnvironment(session, environmentId);
        const sealed = keyring.seal(placeOf(key), secret);
        await rows.putAgent(session, {
          ...key,
          ...{ callback_url: input.callbackUrl, sealed, registered_at: registeredAt },
        });
        await rows.deleteTools(session, key);
        if ((await rows.insertTools(session, environmentId, tools)) < tools.length)
          throw taken(await rows.takenName(session, key, names));
        requireRoom(await rows.totalsOf(session, environmentId));
        return { result: undefined, sealed: [sealed] };
      });
      return { secret, names, registeredAt };
    },

    /** Answers how many tools went: none of an agent that is not there. */
    async unregister(environmentId: string, agentName: string): Promise<number> {
      rules.requireAgentName(agentName);
      const key = { environment_id: environmentId, name: agentName };
      return store.write(async (session) => {
        await rows.deleteAgent(session, key);
        return rows.deleteTools(session, key);
      });
    },

    async list(
      environmentId: string,
      cursor: string,
    ): Promise<{ items: rows.ToolRow[]; nextCursor: string | undefined }> {
      const after = cursor === "" ? "" : readNameCursor("cursor", cursor);
      const found = await rows.listTools(store, environmentId, { after, limit: toolPageMax + 1 });
      return pageOf(found, toolPageMax, ({ qualified_name }) => writeNameCursor(qualified_name));
    },

    /** Seals all secrets again, in the transaction that rotates the master key. */
    async reseal(session: Session, again: (place: string, sealed: string) => string): Promise<void> {
      for (const row of await rows.sealedAgents(session))
        await rows.resealAgent(session, { ...row, sealed: again(placeOf(row), row.sealed) });
    },
  };
}

const taken = (found: Pick<rows.ToolRow, "qualified_name" | "agent_name"> | undefined): Fault =>
  new Fault(
    "already_exists",
    found
      ? `tools: ${found.qualified_name} is a tool of agent ${found.agent_name}`
      : "tools: a name is a tool of another agent",
    { field: "tools" },
  );
