import type { Static, TSchema } from "@sinclair/typebox";
import { compiled } from "./compiled.ts";
import { explain } from "./explain.ts";

const mark = Symbol("checked apart");

/** What `checkedApart` has marked: part of the description of an input, and not of the edge's check. */
export const isCheckedPerItem = (schema: TSchema): boolean => (schema as { [mark]?: boolean })[mark] === true;

/**
 * Fields that their handler checks, one item at a time: the edge lets any value through. Else one item of
 * many that has the wrong form would refuse the request, or end the stream, that brings the others.
 */
export function checkedPerItem<Fields extends Record<string, TSchema>>(fields: Fields): Fields {
  const marked = Object.entries(fields).map(([name, schema]) => [name, { ...schema, [mark]: true }]);
  return Object.fromEntries(marked) as Fields;
}

/** The check that such a handler makes; throws the fault that names the field. */
export function checker<Schema extends TSchema>(schema: Schema): (value: unknown) => Static<Schema> {
  const check = compiled(() => schema);
  return (value) => {
    if (!check().Check(value)) throw explain(check().Errors(value).First());
    return value;
  };
}
