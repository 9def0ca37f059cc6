import type { Duration, TimeoutOption } from "../wire/duration.ts";
import type { JsonSchemaText, StandardSchema } from "../wire/json-schema.ts";
import type { Jsonify } from "../wire/jsonify.ts";

/** What the code of a tool is given besides its input. */
export interface ToolContext {
  /** `{agent}.{tool}` */
  readonly name: string;
  /** Raised when the server gave the call up. */
  readonly signal: AbortSignal;
}

/** A tool as `defineTools` takes it. */
export interface ToolRule<Input = unknown> {
  /** What it is for, in words for those that choose among tools. */
  description?: string;
  /** Checks the input again where the tool runs; its result replaces the input. */
  input?: StandardSchema<Input>;
  /** By what the server checks inputs before it calls; when left out, what `input` tells. */
  jsonSchema?: JsonSchemaText;
  /** Actions, as `runs:read`, that the roles of callers must grant besides `agent:tools:invoke`. */
  requiredScopes?: readonly string[];
  /** How long a call may take, at most 5 minutes. Default 30 seconds. */
  timeout?: Duration;
  /** Its result, as JSON, is the output. What it throws reaches the caller as HANDLER_ERROR. */
  run(input: Input, context: ToolContext): unknown;
}

/** A tool as it is registered. `timeout` is as of a ToolRule. */
export interface ToolDefinition extends TimeoutOption {
  /** Without its agent. */
  name: string;
  description?: string;
  inputSchema?: JsonSchemaText;
  requiredScopes?: readonly string[];
}

/** A tool of an agent, with the types of its input and output. */
export interface Tool<Input = unknown, Output = unknown> {
  /** `{agent}.{tool}` */
  readonly qualifiedName: string;
  readonly definition: ToolDefinition;
  /** The input as the tool's schema has it, or what is wrong with it. */
  check(input: unknown): Promise<{ value: Input } | { issues: string }>;
  run(input: Input, context: ToolContext): Output | Promise<Output>;
}

/** An agent with its tools, as `defineTools` makes it. */
export interface AgentTools<Tools extends Readonly<Record<string, Tool>> = Readonly<Record<string, Tool>>> {
  readonly agent: string;
  readonly tools: Tools;
}

export interface RegisteredTools {
  /** Signs the calls of the server to the agent, in hex; shown only here. */
  secret: string;
  names: string[];
  registeredAt: string;
}

/** A tool as callers see it. */
export interface VisibleTool {
  qualifiedName: string;
  description: string;
  inputSchema?: JsonSchemaText;
  requiredScopes: string[];
}

export interface InvokeToolOptions {
  signal?: AbortSignal;
}

/** Tools of agents: registered with the URL where the server calls them, and called through the server. */
export interface ToolCalls {
  /** Replaces what the agent had registered. Its secret is another one from now on. */
  register(
    given: AgentTools | { agent: string; tools: readonly ToolDefinition[] },
    options: { callbackUrl: string },
  ): Promise<RegisteredTools>;
  /** All that this client may use, by name. */
  list(): Promise<VisibleTool[]>;
  /**
   * The output of the tool. SvcError with the tool's code for an error that the tool answers, CALLBACK_FAILED
   * and CIRCUIT_OPEN if its agent cannot be reached, the server's code if the call itself is wrong.
   */
  invoke<Input, Output>(
    tool: Tool<Input, Output>,
    input: NoInfer<Input>,
    options?: InvokeToolOptions,
  ): Promise<Jsonify<Output>>;
  invoke<Output = unknown>(tool: string, input?: unknown, options?: InvokeToolOptions): Promise<Output>;
  /** Deletes an agent with its tools; answers how many there were. */
  unregister(agent: AgentTools | string): Promise<number>;
}
