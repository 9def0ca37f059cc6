import type { Static, TSchema } from "@sinclair/typebox";
import { type TypeCheck, TypeCompiler } from "@sinclair/typebox/compiler";
import { type ValueError, ValueErrorType } from "@sinclair/typebox/errors";
import { type Fault, invalid } from "./fault.ts";

/** `/triggers/0/event` reads `triggers[0].event`. */
export function fieldOf(path: string): string {
  let field = "";
  for (const part of path.split("/").slice(1)) {
    const name = part.replaceAll("~1", "/").replaceAll("~0", "~");
    if (/^\d+$/.test(name)) field += `[${name}]`;
    else field += field ? `.${name}` : name;
  }
  return field;
}

const plural = (count: unknown, word: string) => `${count} ${word}${count === 1 ? "" : "s"}`;

/** The words of a closed list, when the schema is a union of literals. */
function choices(schema: TSchema): string | undefined {
  const options: { const?: unknown }[] | undefined = schema.anyOf;
  if (!options?.length || !options.every((option) => option.const !== undefined)) return undefined;
  return options.map((option) => String(option.const)).join(", ");
}

function rule({ type, schema }: ValueError): string {
  switch (type) {
    case ValueErrorType.ObjectRequiredProperty:
      return "required";
    case ValueErrorType.ObjectAdditionalProperties:
      return "unknown field";
    case ValueErrorType.Object:
      return "must be an object";
    case ValueErrorType.ObjectMinProperties:
      return `must have at least ${plural(schema.minProperties, "field")}`;
    case ValueErrorType.ObjectMaxProperties:
      return `must have at most ${plural(schema.maxProperties, "field")}`;
    case ValueErrorType.Array:
      return "must be an array";
    case ValueErrorType.ArrayMinItems:
      return `must have at least ${plural(schema.minItems, "item")}`;
    case ValueErrorType.ArrayMaxItems:
      return `must have at most ${plural(schema.maxItems, "item")}`;
    case ValueErrorType.ArrayUniqueItems:
      return "must not repeat an item";
    case ValueErrorType.String:
      return "must be a string";
    case ValueErrorType.StringMinLength:
      return schema.minLength === 1 ? "must not be empty" : `must be at least ${schema.minLength} characters`;
    case ValueErrorType.StringMaxLength:
      return `must be at most ${schema.maxLength} characters`;
    case ValueErrorType.StringPattern:
      return `must match ${schema.pattern}`;
    case ValueErrorType.StringFormat:
      return `must be a ${schema.format}`;
    case ValueErrorType.Boolean:
      return "must be true or false";
    case ValueErrorType.Integer:
      return "must be an integer";
    case ValueErrorType.Number:
      return "must be a number";
    case ValueErrorType.IntegerMinimum:
    case ValueErrorType.NumberMinimum:
      return `must be at least ${schema.minimum}`;
    case ValueErrorType.IntegerMaximum:
    case ValueErrorType.NumberMaximum:
      return `must be at most ${schema.maximum}`;
    case ValueErrorType.IntegerExclusiveMinimum:
    case ValueErrorType.NumberExclusiveMinimum:
      return `must be more than ${schema.exclusiveMinimum}`;
    case ValueErrorType.IntegerExclusiveMaximum:
    case ValueErrorType.NumberExclusiveMaximum:
      return `must be less than ${schema.exclusiveMaximum}`;
    case ValueErrorType.Null:
      return "must be null";
    case ValueErrorType.Literal:
      return `must be ${JSON.stringify(schema.const)}`;
    case ValueErrorType.Union: {
      const words = choices(schema);
      return words ? `must be one of ${words}` : "has none of the allowed forms";
    }
    default:
      return "has the wrong form";
  }
}

/** The offence inside a form that may also be null: only that one says which field is wrong. */
function inside(error: ValueError): ValueError {
  if (error.type !== ValueErrorType.Union || error.value == null) return error;
  const options: TSchema[] = error.schema.anyOf;
  const forms = options.flatMap(({ type }, at) => (type === "null" ? [] : at));
  const first = forms.length === 1 && options.length > 1 ? error.errors[forms[0]!]?.First() : undefined;
  return first ? inside(first) : error;
}

/**
 * The first offence, named in the spelling of the wire with the rule in words. `whole` names the value
 * itself.
 */
export function explain(found: ValueError | undefined, whole = "body"): Fault {
  if (!found) return invalid(whole, "has the wrong form");
  const error = inside(found);
  // A binding that copies an absent field leaves undefined behind; to the caller that is a missing one.
  if (error.value === undefined && error.path !== "") return invalid(fieldOf(error.path), "required");
  return invalid(fieldOf(error.path) || whole, rule(error));
}

/** The check of a schema, compiled at the first value: all together are a fifth of a start's computing. */
export function compiled<Schema extends TSchema>(schema: () => Schema): () => TypeCheck<Schema> {
  let check: TypeCheck<Schema> | undefined;
  return () => {
    check ??= TypeCompiler.Compile(schema());
    return check;
  };
}

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
