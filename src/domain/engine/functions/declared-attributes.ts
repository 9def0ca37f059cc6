import { readDeclared } from "../attributes/rules.ts";
import type { FunctionDefinition } from "./definition.ts";

/** Throws the fault that names the field and the rule. */
export const readAttributes = (
  given: Parameters<typeof readDeclared>[0] = [],
): Pick<FunctionDefinition, "attributes"> => (given.length === 0 ? {} : { attributes: readDeclared(given) });
