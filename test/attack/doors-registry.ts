import type { DescMessage } from "@bufbuild/protobuf";
import { KindGuard, type TSchema } from "@sinclair/typebox";
import type { Operation } from "../../src/kit/operation.ts";

/** Operations that take free JSON, and the doors of this suite that try them. */
export const doorsIn: Record<string, string> = {
  "agentTools.invoke": "the input of a tool, which is sent on and not kept",
  "config.put": "POST config",
  "config.patch": "PATCH config",
  "events.emit": "Emit, Trigger, PubSub Emit",
  "events.emitBatch": "TriggerBatch",
  "events.emitSync": "TriggerSync",
  "functions.invoke": "InvokeFunction",
  "functions.invokeSync": "InvokeFunctionSync",
  "functions.register": "RegisterFunction metadata",
  "groups.create": "CreateConsumerGroup metadata",
  "groups.update": "by the same reader as groups.create",
  "projections.save": "SaveProjectionState, SaveProjectionStates",
  "steps.patch": "PatchStep",
  "runs.inject": "InjectStepOutput",
  "runs.signal": "SignalRun, with the values of this suite (operations/signals)",
  "runs.writeOutput": "chunks of an output (operations/outputs)",
  "schemas.testUpcast": "TestUpcast, POST upcast",
  "streams.append": "AppendEvent",
  "streams.appendBatch": "AppendEvents",
  "streams.createSnapshot": "CreateSnapshot",
  "topics.publish": "Publish",
  "topics.publishBatch": "PublishBatch",
  "webhooks.create": "CreateWebhookSource metadata",
  "webhooks.receive": "POST webhooks",
  "webhooks.update": "by the same reader as webhooks.create",
  "workers.connect": "worker streams",
  "workers.exchange": "worker REST",
  "workers.report": "worker REST",
};

/** Operations that give it. */
export const doorsOut: Record<string, string> = {
  "agentTools.invoke": "the output of a tool, which comes from its agent",
  "agentTools.list": "schemas as they were sent, as text",
  "config.get": "GET config, by the doors in",
  "debug.requests": "what the doors in were sent, without secret fields, up to a size",
  "events.get": "GET event",
  "events.list": "GET events",
  "events.emitSync": "TriggerSync",
  "functions.invokeSync": "InvokeFunctionSync",
  "runs.get": "GetRun",
  "runs.list": "ListRuns",
  "runs.steps": "GetRunSteps",
  "runs.logs": "fields of lines, without secrets, at most eight levels and 1 KiB (operations/run-logs)",
  "runs.signals": "GET signals, with the values of this suite (operations/signals)",
  "runs.output": "chunks as they were written (operations/outputs)",
  "runs.cancel": "the run as GetRun has it",
  "runs.resume": "the run as GetRun has it",
  "runs.move": "the run as GetRun has it",
  "steps.patch": "the step as GetRunSteps has it",
  "schemas.register": "schemas as they were sent, as text",
  "schemas.get": "schemas as they were sent, as text",
  "schemas.testUpcast": "TestUpcast",
  "streams.read": "ReadStream",
  "streams.history": "GetEntityHistory",
  "streams.getSnapshot": "GetSnapshot",
  "projections.get": "GetProjection, GET projection",
  "projections.list": "statements of SQL projections, which are texts",
  "projections.querySql": "values of columns by their types, not the JSON that came in",
  "projections.history": "a definition, whose fields are texts",
  "projections.revision": "a definition, whose fields are texts",
  "projections.poll": "PollProjectionEvents",
  "projections.stream": "StreamProjectionEvents",
  "repairs.start": "what was asked for: its fields are texts",
  "repairs.get": "what was asked for: its fields are texts",
  "repairs.list": "what was asked for: its fields are texts",
  "repairs.pause": "what was asked for: its fields are texts",
  "repairs.continue": "what was asked for: its fields are texts",
  "repairs.stop": "what was asked for: its fields are texts",
  "replays.start": "what was asked for: its fields are texts",
  "pubsub.subscribe": "Subscribe, /ws",
  "groups.join": "deliveries as Subscribe has them",
  "groups.create": "metadata of a group",
  "groups.get": "metadata of a group",
  "groups.list": "metadata of a group",
  "groups.update": "metadata of a group",
  "functions.register": "metadata of a function",
  "functions.get": "metadata of a function",
  "functions.list": "metadata of a function",
  "functions.setStatus": "metadata of a function",
  "functions.history": "metadata of a function",
  "functions.at": "metadata of a function",
  "functions.rollback": "metadata of a function",
  "webhooks.create": "metadata of a source",
  "webhooks.get": "metadata of a source",
  "webhooks.list": "metadata of a source",
  "webhooks.update": "metadata of a source",
  "webhooks.rotateSecret": "metadata of a source",
  "webhooks.expireSecret": "metadata of a source",
  "webhooks.disableVerification": "metadata of a source",
  "webhooks.rotateToken": "metadata of a source",
  "webhooks.listDeliveries": "headers of a request, which are texts; its body is a text, too",
  "webhooks.getDelivery": "headers of a request, which are texts; its body is a text, too",
  "webhooks.redeliver": "headers of a request, which are texts; its body is a text, too",
  "workers.connect": "worker streams",
  "audit.trail": "payloads of ours, with outputs of patches; written as GetRun writes",
  "audit.authTrail": "inputs as they are redacted, at most eight levels",
  "platform.audit.list": "inputs as they are redacted, at most eight levels",
};

function isFree(schema: TSchema | undefined): boolean {
  if (schema === undefined) return false;
  if (KindGuard.IsUnknown(schema) || KindGuard.IsAny(schema)) return true;
  if (KindGuard.IsObject(schema)) return Object.values(schema.properties).some(isFree);
  if (KindGuard.IsArray(schema)) return isFree(schema.items);
  if (KindGuard.IsUnion(schema)) return schema.anyOf.some(isFree);
  if (KindGuard.IsRecord(schema)) return Object.values(schema.patternProperties).some(isFree);
  return false;
}

const free = new Set(["google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue"]);

function carries(message: DescMessage, seen = new Set<DescMessage>()): boolean {
  if (free.has(message.typeName)) return true;
  if (seen.has(message)) return false;
  seen.add(message);
  return message.fields.some((field) => field.message !== undefined && carries(field.message, seen));
}

const methodsOf = ({ rpc }: Operation) =>
  (rpc === undefined ? [] : Array.isArray(rpc) ? rpc : [rpc]).map(
    ({ method }) => method as { input: DescMessage; output: DescMessage },
  );

/** Operations that carry free JSON and that this suite does not try; and names of this list that carry none any more. */
export function untried(registry: readonly Operation[]): string[] {
  const breaches: string[] = [];
  for (const operation of registry) {
    const takes = isFree(operation.input) || methodsOf(operation).some(({ input }) => carries(input));
    const output = "output" in operation ? (operation.output as TSchema | undefined) : undefined;
    const gives = isFree(output) || methodsOf(operation).some((method) => carries(method.output));
    if (takes && !(operation.name in doorsIn))
      breaches.push(`${operation.name} takes free JSON and no door of this suite tries it`);
    if (gives && !(operation.name in doorsOut))
      breaches.push(`${operation.name} gives free JSON and no door of this suite tries it`);
  }
  const names = new Set(registry.map(({ name }) => name));
  for (const name of [...Object.keys(doorsIn), ...Object.keys(doorsOut)])
    if (!names.has(name)) breaches.push(`${name} is tried and is no operation`);
  return breaches;
}
