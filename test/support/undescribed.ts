import { exampleValues } from "../../src/edge/example-values.ts";
import { fieldWords } from "../../src/edge/field-words.ts";
import { snakeCase } from "../../src/kit/cases.ts";

interface Schema {
  description?: string;
  type?: string;
  format?: string;
  maximum?: number;
  /** Of a parameter, beside its words. */
  schema?: Schema;
  properties?: Record<string, Schema>;
  items?: Schema;
  additionalProperties?: Schema | boolean;
  anyOf?: Schema[];
  oneOf?: Schema[];
}

interface Body {
  content?: Record<string, { schema?: Schema; example?: unknown }>;
}

interface Parameter {
  $ref?: string;
  name: string;
  in: string;
  description?: string;
  schema?: Schema;
  example?: unknown;
}

interface Described {
  operationId: string;
  summary?: string;
  parameters?: Parameter[];
  requestBody?: Body;
  responses: Record<string, Body>;
}

export interface DescribedDocument {
  tags: { name: string; description: string }[];
  paths: Record<string, Record<string, Described>>;
  components: { schemas: Record<string, Schema> };
}

/** Every field below a schema, with where it stands. */
function* fieldsOf(schema: Schema, at: string): Generator<[at: string, name: string, field: Schema]> {
  for (const [name, field] of Object.entries(schema.properties ?? {})) {
    yield [`${at}.${name}`, name, field];
    yield* fieldsOf(field, `${at}.${name}`);
  }
  const { items, additionalProperties: rest, anyOf = [], oneOf = [] } = schema;
  if (items) yield* fieldsOf(items, `${at}[]`);
  if (typeof rest === "object") yield* fieldsOf(rest, `${at}{}`);
  for (const one of [...anyOf, ...oneOf]) yield* fieldsOf(one, at);
}

const operationsOf = ({ paths }: DescribedDocument): Described[] =>
  Object.values(paths).flatMap((methods) => Object.values(methods));

const contentsOf = ({ requestBody, responses }: Described): [side: string, Body][] => [
  ...(requestBody ? [["request", requestBody] as [string, Body]] : []),
  ...Object.entries(responses),
];

function* everyField(document: DescribedDocument): Generator<[at: string, name: string, field: Schema]> {
  for (const [name, schema] of Object.entries(document.components.schemas)) yield* fieldsOf(schema, name);
  for (const operation of operationsOf(document)) {
    for (const one of operation.parameters ?? [])
      if (one.$ref === undefined) yield [`${operation.operationId} ${one.in}.${one.name}`, one.name, one];
    for (const [side, { content = {} }] of contentsOf(operation))
      for (const { schema } of Object.values(content))
        if (schema) yield* fieldsOf(schema, `${operation.operationId} ${side}`);
  }
}

const where = (at: string): string =>
  at.startsWith("svc.v1.")
    ? `${at}: a comment above the field in proto/`
    : `${at}: a description beside its schema in the operation`;

/** Fewer than three words name the thing again, or half of it; a list of values in marks says enough. */
const saysLittle = (words: string): boolean => words.split(/\s+/).length < 3 && !/`[^`]+`|\d/.test(words);

const isTime = /(^|_)(at|since|until|timestamp)$/;
const isSize = /^(limit|max_rows|batch_size|offset)$/;
/** Where a field is sent: in the message of an RPC, in a query or in a body. */
const isAsked = /Request\.| (query|request)\b/;
/** Formats that say how a time is written; a 64-bit number is a position or milliseconds. */
const timed = new Set(["date-time", "int64", "uint64"]);

/** What the words of a field leave out; undefined when nothing. */
function lacking(at: string, name: string, field: Schema): string | undefined {
  const { description = "" } = field;
  const { type, format = "", maximum } = field.schema ?? field;
  if (saysLittle(description)) return "words that say what it is";
  if (isTime.test(snakeCase(name)) && type === "string" && !timed.has(format))
    return /RFC 3339|^The same as/.test(description) ? undefined : "how the time is written";
  if (isAsked.test(at) && isSize.test(snakeCase(name)) && type === "integer" && maximum === undefined)
    return /\d/.test(description) ? undefined : "its default or its most";
  return undefined;
}

/** What a reader of the document is not told, and where it is to be written. */
export function undescribed(document: DescribedDocument): string[] {
  const missing = new Set<string>();
  for (const [at, name, field] of everyField(document)) {
    const lacks = lacking(at, name, field);
    if (lacks !== undefined) missing.add(`${where(at)}: ${lacks}`);
  }
  for (const { name, description } of document.tags)
    if (description === "") missing.add(`group ${name}: a line of \`groups\` in src/edge/openapi-parts.ts`);
  for (const operation of operationsOf(document)) {
    const { operationId, summary = "", parameters = [] } = operation;
    if (summary === "") missing.add(`${operationId}: a summary`);
    for (const { $ref, name, example } of parameters)
      if ($ref === undefined && example === undefined) missing.add(`${operationId} ${name}: an example`);
    for (const [side, { content = {} }] of contentsOf(operation))
      for (const { schema, example } of Object.values(content))
        if (schema !== undefined && example === undefined) missing.add(`${operationId} ${side}: an example`);
  }
  return [...missing].sort();
}

function* textsOf(value: unknown, name: string): Generator<[name: string, text: string]> {
  if (typeof value === "string") yield [snakeCase(name), value];
  else if (Array.isArray(value)) for (const one of value) yield* textsOf(one, name);
  else if (typeof value === "object" && value !== null)
    for (const [field, one] of Object.entries(value)) yield* textsOf(one, field);
}

const isSecret = /(^|_)(token|password|secret|api_key)$/;

/** Keys, tokens and passwords of examples that do not look made up: readers and scanners would wonder whose they are. */
export function plausibleSecrets(document: DescribedDocument): string[] {
  const found = new Set<string>();
  for (const operation of operationsOf(document)) {
    const shown = [
      ...(operation.parameters ?? []).map(({ name, example }) => ({ [name]: example })),
      ...contentsOf(operation).flatMap(([, { content = {} }]) =>
        Object.values(content).map(({ example }) => example),
      ),
    ];
    for (const [name, text] of textsOf(shown, ""))
      if ((isSecret.test(name) || /^ifkey_.{12}/.test(text)) && !/example|correct horse|^$/.test(text))
        found.add(`${operation.operationId} ${name}: ${text}`);
  }
  return [...found].sort();
}

/** Words that no field takes, and values of names that no field has. */
export function unusedWords(document: DescribedDocument): string[] {
  const fields = [...everyField(document)].map(
    ([, name, { description }]) => [snakeCase(name), description] as const,
  );
  const names = new Set(fields.map(([name]) => name));
  const taken = new Set(fields.filter(([name, words]) => fieldWords[name] === words).map(([name]) => name));
  return [
    ...Object.keys(fieldWords).filter((name) => !taken.has(name)),
    ...Object.keys(exampleValues).filter((name) => !names.has(name)),
  ].sort();
}
