import { raiseDefinitions } from "../domain/engine/functions/held-function.ts";
import { schemasOperations } from "../domain/log/schemas/operations.ts";
import { openSchemas } from "../domain/log/schemas/service.ts";
import { schemaFrames } from "../domain/realtime/pubsub/moved-frames.ts";
import type { Host, PartShape } from "./part.ts";

export type SchemasPart = ReturnType<typeof openSchemasPart>;

/** The registry of event schemas. They are enforced where the definitions of an environment are read. */
export function openSchemasPart({ store, clock, frames, shareEnvironment }: Host) {
  const announce = schemaFrames({ clock, frames });
  const schemas = openSchemas({ store, clock, shareEnvironment, raiseDefinitions, announce });
  return { schemas, operations: schemasOperations(schemas) } satisfies PartShape;
}
