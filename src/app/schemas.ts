import { raiseDefinitions } from "../domain/engine/functions/held-function.ts";
import { schemasOperations } from "../domain/log/schemas/operations.ts";
import { openSchemas, type Schemas } from "../domain/log/schemas/service.ts";
import { schemaFrames } from "../domain/realtime/pubsub/moved-frames.ts";
import type { Host, Part } from "./part.ts";

export interface SchemasPart extends Part {
  schemas: Schemas;
}

/** The registry of event schemas. What it holds is enforced where the definitions of an environment are read. */
export function openSchemasPart({ store, clock, frames, shareEnvironment }: Host): SchemasPart {
  const announce = schemaFrames({ clock, frames });
  const schemas = openSchemas({ store, clock, shareEnvironment, raiseDefinitions, announce });
  return { schemas, operations: schemasOperations(schemas), loops: [], duties: [] };
}
