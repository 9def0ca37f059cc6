import { comments } from "../gen/svc/v1/comments.ts";
import { snakeCase } from "../kit/cases.ts";
import { describedBy } from "../kit/message-shape.ts";
import { fieldWords } from "./field-words.ts";

export type JsonSchema = Record<string, unknown>;

/** What is said of all fields of this name, in either spelling. */
export function wordsOf(name: string): string | undefined {
  const plain = snakeCase(name);
  return Object.hasOwn(fieldWords, plain) ? fieldWords[plain] : undefined;
}

/**
 * The schema with words for those of its fields, at any depth, that say nothing themselves: those of the
 * message that it is made of, else of the name.
 */
export function withWords(schema: unknown): unknown {
  if (Array.isArray(schema)) return schema.map(withWords);
  if (typeof schema !== "object" || schema === null) return schema;
  const { [describedBy]: message, ...rest } = schema as JsonSchema;
  return Object.fromEntries(
    Object.entries(rest).map(([key, value]) => {
      if (key !== "properties") return [key, withWords(value)];
      const fields = Object.entries(value as Record<string, JsonSchema>).map(([name, field]) => {
        const words = field.description ?? comments[`${message}.${name}`] ?? wordsOf(name);
        const whole = withWords(field) as JsonSchema;
        return [name, words === undefined ? whole : { ...whole, description: words }];
      });
      return [key, Object.fromEntries(fields)];
    }),
  );
}
