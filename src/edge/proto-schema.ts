import { type DescEnum, type DescField, type DescMessage, ScalarType } from "@bufbuild/protobuf";
import { comments } from "../gen/svc/v1/comments.ts";
import { alwaysPresent, inBothSpellings } from "./always-present.ts";
import { type JsonSchema, wordsOf } from "./field-words.ts";

/** The well-known types in their JSON form. */
const wellKnown: Record<string, JsonSchema> = {
  "google.protobuf.Timestamp": { type: "string", format: "date-time" },
  "google.protobuf.Duration": { type: "string", pattern: "^-?[0-9]+(\\.[0-9]{1,9})?s$", examples: ["1.5s"] },
  "google.protobuf.Struct": { type: "object", additionalProperties: true },
  "google.protobuf.Value": { description: "Any JSON value." },
  "google.protobuf.ListValue": { type: "array", items: {} },
  "google.protobuf.Empty": { type: "object" },
  "google.protobuf.FieldMask": { type: "string" },
};

const scalars: Record<ScalarType, JsonSchema> = {
  [ScalarType.STRING]: { type: "string" },
  [ScalarType.BOOL]: { type: "boolean" },
  [ScalarType.BYTES]: { type: "string", contentEncoding: "base64" },
  [ScalarType.DOUBLE]: { type: "number", format: "double" },
  [ScalarType.FLOAT]: { type: "number", format: "float" },
  [ScalarType.INT32]: { type: "integer", format: "int32" },
  [ScalarType.SINT32]: { type: "integer", format: "int32" },
  [ScalarType.SFIXED32]: { type: "integer", format: "int32" },
  [ScalarType.UINT32]: { type: "integer", minimum: 0 },
  [ScalarType.FIXED32]: { type: "integer", minimum: 0 },
  [ScalarType.INT64]: { type: "string", format: "int64" },
  [ScalarType.SINT64]: { type: "string", format: "int64" },
  [ScalarType.SFIXED64]: { type: "string", format: "int64" },
  [ScalarType.UINT64]: { type: "string", format: "uint64" },
  [ScalarType.FIXED64]: { type: "string", format: "uint64" },
};

/** What an enum is, and what its values mean where their names do not say it. */
function enumWords(typeName: string, values: DescEnum["values"]): string {
  const said = values.flatMap(({ name }) => {
    const words = comments[`${typeName}.${name}`];
    return words === undefined ? [] : [`\`${name}\`: ${words}`];
  });
  return [comments[typeName] ?? "", ...said].join(" ").trim();
}

const reference = (name: string): JsonSchema => ({ $ref: `#/components/schemas/${name}` });

/**
 * Collects the schemas of messages and enums as the protobuf JSON mapping writes them, each once, under its
 * full name.
 */
export class ProtoSchemas {
  readonly components: Record<string, JsonSchema> = {};

  message(message: DescMessage): JsonSchema {
    const known = wellKnown[message.typeName];
    if (known) return known;
    const { typeName } = message;
    if (!(typeName in this.components)) {
      // In place before its fields are looked at: messages may hold themselves.
      const schema: JsonSchema = { type: "object" };
      this.components[typeName] = schema;
      this.#describe(message, schema);
      if (inBothSpellings.has(typeName)) this.#admitBoth(message, new Set());
    }
    return reference(typeName);
  }

  /** Of the message and of those that it holds, as their JSON has both. */
  #admitBoth(message: DescMessage, seen: Set<string>): void {
    const properties = this.components[message.typeName]?.properties as
      | Record<string, JsonSchema>
      | undefined;
    if (!properties || seen.has(message.typeName)) return;
    seen.add(message.typeName);
    for (const { name, jsonName, message: inner } of message.fields) {
      if (name !== jsonName)
        properties[name] = { ...properties[jsonName], description: `The same as \`${jsonName}\`.` };
      if (inner) this.#admitBoth(inner, seen);
    }
  }

  #describe(message: DescMessage, schema: JsonSchema): void {
    const properties: Record<string, JsonSchema> = {};
    for (const field of message.fields) {
      const description = comments[`${message.typeName}.${field.name}`] ?? wordsOf(field.name);
      properties[field.jsonName] = {
        ...this.#field(field),
        ...(description !== undefined && { description }),
      };
    }
    const description = comments[message.typeName];
    if (description !== undefined) schema.description = description;
    schema.properties = properties;
    schema.additionalProperties = false;
    const filled = alwaysPresent[message.typeName] ?? [];
    const required = message.fields.filter(
      ({ name, fieldKind }) => filled.includes(name) && fieldKind !== "message",
    );
    if (required.length > 0) schema.required = required.map(({ jsonName }) => jsonName);
    const choices = message.oneofs.map(({ fields }) => {
      const one = fields.map(({ jsonName }) => ({ required: [jsonName], properties: { [jsonName]: {} } }));
      return { oneOf: [...one, { not: { anyOf: one } }] };
    });
    if (choices.length > 0) schema.allOf = choices;
  }

  #enum({ typeName, values }: DescEnum): JsonSchema {
    this.components[typeName] ??= {
      type: "string",
      enum: values.map(({ name }) => name),
      description: enumWords(typeName, values),
    };
    return reference(typeName);
  }

  #field(field: DescField): JsonSchema {
    switch (field.fieldKind) {
      case "scalar":
        return scalars[field.scalar];
      case "enum":
        return this.#enum(field.enum);
      case "message":
        return this.message(field.message);
      case "list":
        return { type: "array", items: this.#item(field.listKind, field) };
      case "map":
        return { type: "object", additionalProperties: this.#item(field.mapKind, field) };
    }
  }

  #item(
    kind: "scalar" | "enum" | "message",
    { scalar, enum: words, message }: Pick<DescField, "scalar" | "enum" | "message">,
  ): JsonSchema {
    if (kind === "message" && message) return this.message(message);
    if (kind === "enum" && words) return this.#enum(words);
    return scalar === undefined ? {} : scalars[scalar];
  }
}
