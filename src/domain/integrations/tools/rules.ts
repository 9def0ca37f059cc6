import { createHmac } from "node:crypto";
import { type Action, isAction } from "../../../gate/actions.ts";
import type { Instant } from "../../../kit/clock.ts";
import { requireEventName, requireStorable } from "../../../kit/event-names.ts";
import { Fault, invalid } from "../../../kit/fault.ts";
import type { Breach, TooMuchToCheck } from "../../../kit/json-schema/json-schema.ts";
import { requireCallableUrl, TransportFailure } from "../../../kit/outward-call.ts";
import { requirePayload } from "../../../kit/payload-json.ts";
import { isJsonObject } from "../../../kit/wkt.ts";
import {
  agentNameBytesMax,
  callbackUrlBytesMax,
  requiredScopesMax,
  toolDescriptionBytesMax,
  toolErrorCharsMax,
  toolErrorCodeCharsMax,
  toolNameBytesMax,
  toolSchemaBytesMax,
  toolsOfAgentMax,
  toolTimeoutMsMax,
} from "./limits.ts";

/** A tool as an agent registers it. */
export interface ToolInput {
  name: string;
  description: string;
  /** A JSON Schema, as text; empty takes any input. */
  inputSchemaJson: string;
  /** Actions that a caller's roles must grant besides that of the call itself. */
  requiredScopes: readonly string[];
  /** 0 takes `toolTimeoutMsDefault`. */
  timeoutMs: number;
}

export interface AgentInput {
  agentName: string;
  callbackUrl: string;
  tools: readonly ToolInput[];
}

/** What one call of a tool came to: mistakes of its caller are faults. */
export type ToolOutcome = { output: unknown } | { error: { code: string; message: string } };

export const qualifiedName = (agentName: string, toolName: string): string => `${agentName}.${toolName}`;

/** Tools are named as events are, in fewer bytes. */
function requireName(field: string, name: string, bytesMax: number): void {
  if (Buffer.byteLength(name) > bytesMax) throw invalid(field, `at most ${bytesMax} bytes`);
  requireEventName(field, name);
}

export const requireAgentName = (name: string): void => requireName("agentName", name, agentNameBytesMax);

function requireCallbackUrl(url: string): void {
  const field = "callbackUrl";
  requireStorable(field, url);
  if (Buffer.byteLength(url) > callbackUrlBytesMax)
    throw invalid(field, `at most ${callbackUrlBytesMax} bytes`);
  requireCallableUrl(field, url);
  if (/[?#]/.test(url)) throw invalid(field, "must not have a query or a fragment");
}

function requireTool(field: string, tool: ToolInput): void {
  requireName(`${field}.name`, tool.name, toolNameBytesMax);
  requireStorable(`${field}.description`, tool.description);
  if (Buffer.byteLength(tool.description) > toolDescriptionBytesMax)
    throw invalid(`${field}.description`, `at most ${toolDescriptionBytesMax} bytes`);
  requireStorable(`${field}.inputSchemaJson`, tool.inputSchemaJson);
  if (Buffer.byteLength(tool.inputSchemaJson) > toolSchemaBytesMax)
    throw invalid(`${field}.inputSchemaJson`, `at most ${toolSchemaBytesMax} bytes`);
  if (tool.requiredScopes.length > requiredScopesMax)
    throw invalid(`${field}.requiredScopes`, `at most ${requiredScopesMax} actions`);
  // Roles of tenants may name an action of the platform, which their credentials still do not hold.
  for (const [at, scope] of tool.requiredScopes.entries())
    if (!isAction(scope) || scope.startsWith("platform:"))
      throw invalid(
        `${field}.requiredScopes[${at}]`,
        "must be an action that roles of a tenant grant, as runs:read",
      );
  if (tool.timeoutMs > toolTimeoutMsMax)
    throw invalid(`${field}.timeoutMs`, `must be from 0 to ${toolTimeoutMsMax}`);
}

/** Throws the fault that names the field. The schemas themselves are looked at when they are compiled. */
export function requireRegistrable({ agentName, callbackUrl, tools }: AgentInput): void {
  requireAgentName(agentName);
  requireCallbackUrl(callbackUrl);
  if (tools.length === 0) throw invalid("tools", "must not be empty");
  if (tools.length > toolsOfAgentMax)
    throw new Fault("resource_exhausted", `tools: an agent has at most ${toolsOfAgentMax} tools`, {
      field: "tools",
      code: "LIMIT_EXCEEDED",
    });
  const names = new Set<string>();
  for (const [at, tool] of tools.entries()) {
    requireTool(`tools[${at}]`, tool);
    if (names.has(tool.name)) throw invalid(`tools[${at}].name`, "is the name of an earlier one");
    names.add(tool.name);
  }
}

/** As they are stored; only actions were registered. */
export const scopesOf = (stored: string): Action[] => (stored === "" ? [] : (stored.split(",") as Action[]));

const placeCharsMax = 200;

/** The refusal of an input by a rule of its tool's schema. */
export function brokenInput(toolName: string, breach: Breach): Fault {
  const place = breach.at === "" ? "" : `${breach.at.slice(0, placeCharsMax).toWellFormed()} `;
  return new Fault(
    "invalid_argument",
    `input: ${place}${breach.text} (${breach.keyword}, the input schema of ${toolName})`,
    { field: "input", code: "INPUT_SCHEMA_INVALID" },
  );
}

export const tooMuchToCheck = (toolName: string, { message }: TooMuchToCheck): Fault =>
  new Fault("resource_exhausted", `input: ${message} by the input schema of ${toolName}`, {
    ...{ field: "input", code: "LIMIT_EXCEEDED" },
  });

export const dispatchPath = "/svc/agent-tools/dispatch";

/** Clients of some generations register a URL that ends with the path already. */
export function dispatchUrl(callbackUrl: string): string {
  const base = callbackUrl.replace(/\/+$/, "");
  return base.endsWith(dispatchPath) ? base : base + dispatchPath;
}

/** The signature covers the time, so that an agent can refuse a recorded call that is sent again. */
export function signedHeaders(secret: string, body: string, at: Instant): Record<string, string> {
  const seconds = String(Math.floor(at / 1_000));
  const signature = createHmac("sha256", Buffer.from(secret, "hex"))
    .update(`${seconds}.${body}`)
    .digest("hex");
  return { "X-Svc-Timestamp": seconds, "X-Svc-Signature": `sha256=${signature}` };
}

const noReason = "the tool gave no reason";

/** Undefined unless it is `{error: {code, message}}`. */
function errorOf(answer: unknown): ToolOutcome | undefined {
  if (!isJsonObject(answer) || !isJsonObject(answer.error)) return undefined;
  const { code, message } = answer.error;
  const isWord = typeof code === "string" && code.length <= toolErrorCodeCharsMax && /^[\w.:-]+$/.test(code);
  const text = typeof message === "string" ? message.slice(0, toolErrorCharsMax).toWellFormed() : "";
  return { error: { code: isWord ? code : "HANDLER_ERROR", message: text || noReason } };
}

/** What an agent's 200 says. Throws TransportFailure for anything that no agent would answer. */
export function outcomeOf(answer: unknown): ToolOutcome {
  if (!isJsonObject(answer))
    throw new TransportFailure("the agent's answer is no object with output or error");
  const { output = null, error } = answer;
  if (error !== undefined && error !== null)
    return errorOf(answer) ?? { error: { code: "HANDLER_ERROR", message: noReason } };
  try {
    requirePayload("output", output);
  } catch (fault) {
    if (fault instanceof Fault)
      throw new TransportFailure(`the agent's answer is unusable: ${fault.message}`);
    throw fault;
  }
  return { output };
}

/** Statuses by which an agent refuses a call, with the reason in its body. */
export const refusals: ReadonlySet<number> = new Set([400, 401]);

/** What such a body says. */
export function refusalOf(status: number, answer: unknown): ToolOutcome {
  const outcome = errorOf(answer);
  if (!outcome) throw new TransportFailure(`the agent answered ${status}`);
  return outcome;
}
