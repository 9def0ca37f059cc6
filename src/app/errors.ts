import { errorChecks } from "../domain/engine/errors/invariants.ts";
import { errorsOperations } from "../domain/engine/errors/operations.ts";
import { openErrorGroups } from "../domain/engine/errors/service.ts";
import type { Host, Part } from "./part.ts";

/** Groups of failures, which the flushes that end runs count. */
export const openErrorsPart = ({ store }: Host): Part => ({
  operations: errorsOperations(openErrorGroups(store)),
  loops: [],
  duties: [],
  checks: errorChecks(store),
});
