import { SvcError } from "../sdk/index.ts";
import { flagOf, type OperationField } from "./operations.ts";

/** Fields that flags of every command stand for. */
const commonNames: Readonly<Record<string, string>> = { env: "env" };

/** A refusal names a field, and who typed the command knows its flag. */
export function namedByFlag(error: unknown, flagNames: ReadonlyMap<OperationField, string>): unknown {
  if (!(error instanceof SvcError)) return error;
  const [name = ""] = /^\w+(?=[^:\s]*: )/.exec(error.message) ?? [];
  const [, flag] = [...flagNames].find(([field]) => flagOf(field.name) === flagOf(name)) ?? [
    "",
    commonNames[name],
  ];
  if (flag !== undefined) error.message = `--${flag}${error.message.slice(name.length)}`;
  return error;
}
