import { breather } from "../../../kit/breather.ts";
import type { Instant } from "../../../kit/clock.ts";
import { missing } from "../../../kit/fault.ts";
import { openHolderLimit } from "../../../kit/holder-limit.ts";
import { type CompiledSchema, compileInSteps, TooMuchToCheck } from "../../../kit/json-schema/json-schema.ts";
import { integrityRowsMax } from "../../../kit/limits.ts";
import type { Call } from "../../../kit/operation.ts";
import { type CallOutward, readJson, TransportFailure } from "../../../kit/outward-call.ts";
import { jsonText } from "../../../kit/payload-json.ts";
import { sql } from "../../../kit/sql.ts";
import { sizedCache } from "../../../kit/ttl-cache.ts";
import type { Basics, Store } from "../../../store/store.ts";
import type { Keyring } from "../../access/keyring/service.ts";
import type { Breakers } from "../../engine/breakers/service.ts";
import { violationsOf } from "../../record/integrity/rules.ts";
import type { IntegrityCheck } from "../../record/integrity/service.ts";
import {
  compiledSchemasCharsMax,
  compiledSchemasMax,
  toolAnswerBytesMax,
  toolCallsMax,
  toolCallsOfAllMax,
  toolInputBytesMax,
  toolTimeoutMsDefault,
} from "./limits.ts";
import { openRegistry, placeOf, type RegistryDeps } from "./registry.ts";
import * as rows from "./rows.ts";
import * as rules from "./rules.ts";

interface ToolCallsDeps extends Basics<"store" | "clock" | "metrics"> {
  keyring: Pick<Keyring, "unseal">;
  breakers: Breakers;
  call: CallOutward;
}

/** What a compiled schema takes in memory, in characters, for each of its text. */
const compiledCharsAChar = 16;

const outcomes = ["answered", "refused", "failed", "spared"] as const;

async function read(response: Response): Promise<rules.ToolOutcome> {
  const { status } = response;
  if (status === 200) return rules.outcomeOf(await readJson(response, toolAnswerBytesMax));
  if (rules.refusals.has(status)) {
    const answer = await readJson(response, toolAnswerBytesMax).catch(() => undefined);
    return rules.refusalOf(status, answer);
  }
  await response.body?.cancel();
  throw new TransportFailure(`the agent answered ${status}`);
}

/** Calls tools back at their agents. */
function openToolCalls(deps: ToolCallsDeps) {
  const { store, clock, metrics, keyring, breakers, call } = deps;
  const compiled = sizedCache<CompiledSchema>({
    entriesMax: compiledSchemasMax,
    charsMax: compiledSchemasCharsMax,
  });
  const underWay = openHolderLimit({
    most: toolCallsMax,
    all: toolCallsOfAllMax,
    what: "calls of tools",
    whose: "environment",
  });
  const count = metrics.counter({
    name: "svc_agent_tool_calls_total",
    help: "Calls of agents' tools: answered, refused by the agent, failed, or spared by an open breaker.",
    labels: ["outcome"],
  });
  for (const outcome of outcomes) count(outcome);

  async function schemaOf(environmentId: string, text: string): Promise<CompiledSchema> {
    const known = compiled.get(text);
    if (known) return known;
    const breathe = breather(clock, environmentId);
    const steps = compileInSteps(text);
    let step = steps.next();
    for (; !step.done; step = steps.next()) await breathe();
    compiled.set(text, step.value, text.length * compiledCharsAChar);
    return step.value;
  }

  async function requireInput(environmentId: string, tool: rows.ToolRow, input: unknown): Promise<void> {
    if (tool.input_schema === "") return;
    const schema = await schemaOf(environmentId, tool.input_schema);
    try {
      const breach = schema.breachOf(input);
      if (breach) throw rules.brokenInput(tool.qualified_name, breach);
    } catch (error) {
      if (!(error instanceof TooMuchToCheck)) throw error;
      throw rules.tooMuchToCheck(tool.qualified_name, error);
    }
  }

  async function send(
    tool: rows.CallableRow,
    { environmentId, signal }: Pick<Call, "environmentId" | "signal">,
    inputText: string,
  ): Promise<rules.ToolOutcome> {
    const secret = await keyring.unseal(
      placeOf({ environment_id: environmentId, name: tool.agent_name }),
      tool.sealed,
    );
    const endpoint = {
      environmentId,
      functionId: `agent:${tool.agent_name}`,
      endpointUrl: tool.callback_url,
    };
    const admitted = await breakers.admits(endpoint);
    if (admitted === "open") {
      count("spared").add(1);
      const message = `agent ${tool.agent_name} failed too often and is left alone for a while`;
      return { error: { code: "CIRCUIT_OPEN", message } };
    }
    const begunAt = clock.now();
    const body = `{"qualified_name":${JSON.stringify(tool.qualified_name)},"input":${inputText}}`;
    try {
      const outcome = await call(
        {
          url: rules.dispatchUrl(tool.callback_url),
          headers: rules.signedHeaders(secret, body, begunAt),
          timeoutMs: tool.timeout_ms || toolTimeoutMsDefault,
          body,
          signal,
        },
        read,
      );
      count("error" in outcome ? "refused" : "answered").add(1);
      // An agent that refuses is there: else a caller whose inputs are refused would cut off all others.
      await breakers.succeeded(endpoint, begunAt);
      return outcome;
    } catch (error) {
      if (!(error instanceof TransportFailure)) throw error;
      count("failed").add(1);
      // A call that its caller gave up says nothing about the agent.
      if (!signal.aborted) await breakers.failed(endpoint);
      else if (admitted === "trial") await breakers.untried(endpoint);
      return { error: { code: "CALLBACK_FAILED", message: error.message } };
    }
  }

  return {
    async find(environmentId: string, toolName: string): Promise<rows.CallableRow> {
      const tool = await rows.findTool(store, environmentId, toolName);
      if (!tool) throw missing("tool", toolName);
      return tool;
    },

    /** Throws the fault of a mistaken input; what goes wrong behind it is an outcome. */
    async invoke(
      tool: rows.CallableRow,
      at: Pick<Call, "environmentId" | "signal">,
      input: unknown,
    ): Promise<rules.ToolOutcome> {
      const text = jsonText("input", input, toolInputBytesMax);
      const release = underWay.acquire(at.environmentId);
      try {
        await requireInput(at.environmentId, tool, input);
        return await send(tool, at, text);
      } finally {
        release();
      }
    },
  };
}

export type { RegisteredAgent } from "./registry.ts";
export type { CallableRow, ToolRow } from "./rows.ts";
export type { ToolOutcome } from "./rules.ts";

/** Tools that agents register, and calls to them. */
export const openAgentTools = (deps: RegistryDeps & ToolCallsDeps) => ({
  ...openRegistry(deps),
  ...openToolCalls(deps),
});

export type ToolsOfAgents = ReturnType<typeof openAgentTools>;

/** A tool without its agent cannot be called, and keeps its name from others. */
export const agentToolsCheck = (store: Pick<Store, "all">): IntegrityCheck => ({
  name: "agents.tools",
  about: "Tools whose agent is not registered.",
  run: async (environmentId) =>
    violationsOf(
      await store.all<{
        id: string;
        at: Instant;
      }>(sql`SELECT t.qualified_name AS id, 0 AS at, t.agent_name AS agent FROM agent_tools t
        LEFT JOIN agents a ON a.environment_id = t.environment_id AND a.name = t.agent_name
        WHERE t.environment_id = ${environmentId} AND a.name IS NULL LIMIT ${integrityRowsMax}`),
    ),
});
