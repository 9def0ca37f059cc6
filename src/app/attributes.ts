import { attributesOperations } from "../domain/engine/attributes/operations.ts";
import { openAttributes } from "../domain/engine/attributes/service.ts";
import type { DefinitionsCache } from "../domain/engine/functions/definition.ts";
import { definitionsVersion } from "../domain/engine/functions/rows.ts";
import type { Host, Part } from "./part.ts";

/** Names of attributes, listed and deleted. */
export function openAttributesPart({ store, clock }: Host, definitions: DefinitionsCache): Part {
  const attributes = openAttributes({ store, clock, definitions, definitionsVersion });
  return {
    operations: attributesOperations(attributes),
    loops: [],
    duties: [
      {
        duty: "retention",
        name: "attributes.purge",
        about:
          "Deletes the values of attributes whose names were deleted, a slice of each environment in turn.",
        everyMs: 1_000,
        tick: attributes.purgeOnce,
      },
    ],
  };
}
