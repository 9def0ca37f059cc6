import { raiseDefinitions } from "../domain/engine/functions/register.ts";
import { schemasOperations } from "../domain/log/schemas/operations.ts";
import { openSchemas } from "../domain/log/schemas/service.ts";
import { streamsOperations } from "../domain/log/streams/operations.ts";
import { openStreams, streamsCheck } from "../domain/log/streams/service.ts";
import { streamFrames } from "../domain/realtime/pubsub/lifecycle-frames.ts";
import { schemaFrames } from "../domain/realtime/pubsub/moved-frames.ts";
import { redactCopies } from "../domain/record/erasure/service.ts";
import type { EnginePart } from "./engine.ts";
import type { Host, Part, PartShape } from "./part.ts";
import type { AppRights } from "./rights.ts";

type SchemasPart = ReturnType<typeof openSchemasPart>;

/** The registry of event schemas. They are enforced where the definitions of an environment are read. */
export function openSchemasPart({ store, clock, frames, shareEnvironment }: Host) {
  const announce = schemaFrames({ clock, frames });
  const schemas = openSchemas({ store, clock, shareEnvironment, raiseDefinitions, announce });
  return { schemas, operations: schemasOperations(schemas) } satisfies PartShape;
}

/** Entities as streams of versioned events in the event log. */
export function openStreamsPart(
  host: Host,
  { events, runs, quotas }: Pick<EnginePart, "events" | "runs" | "quotas">,
  { schemas }: SchemasPart,
  may: AppRights["may"],
): Part {
  const { store, clock, ids, log, shareEnvironment, frames } = host;
  const streams = openStreams({
    ...{ store, clock, ids, log, events, runs, shareEnvironment },
    forgetBytes: quotas.forgetBytes,
    redactCopies,
    onFrame: streamFrames(frames),
  });
  return {
    operations: streamsOperations(
      streams,
      schemas,
      // Workers of a run invoke functions, and are no users of the platform.
      async (call) =>
        call.caller.kind !== "platform" && may(call, "functions:invoke", { type: "function", id: "*" }),
    ),
    duties: [
      {
        duty: "retention",
        name: "streams.purge",
        about: "Overwrites the payloads of streams that were deleted with them, a slice a transaction.",
        everyMs: 60_000,
        tick: streams.purgeOnce,
      },
    ],
    checks: [streamsCheck(store)],
  };
}
