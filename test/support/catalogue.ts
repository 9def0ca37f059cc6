import { join } from "node:path";
import type { CataloguedOperation, FieldKind, OperationField } from "../../src/cli/operations.ts";
import { openApiDocument, socketOf } from "../../src/edge/openapi.ts";
import { parseRoute, restBindings } from "../../src/edge/rest.ts";
import { methodBindings } from "../../src/edge/rpc.ts";
import type { Operation } from "../../src/kit/operation.ts";
import { startTestServer } from "./server.ts";

export const cataloguePath = join(import.meta.dir, "../../src/cli/operations.json");

interface Schema {
  $ref?: string;
  type?: string | string[];
  format?: string;
  enum?: string[];
  const?: string;
  anyOf?: Schema[];
  items?: Schema;
  properties?: Record<string, Schema>;
  additionalProperties?: unknown;
  required?: string[];
  description?: string;
  default?: unknown;
}

interface Parameter {
  $ref?: string;
  name: string;
  in: OperationField["place"];
  required: boolean;
  description?: string;
  schema: Schema;
}

interface Described {
  parameters?: Parameter[];
  requestBody?: { required?: boolean; content: Record<string, { schema?: Schema }> };
  responses: Record<string, { content?: Record<string, { schema?: Schema }> }>;
}

type Paths = Record<string, Record<string, Described>>;

interface Document {
  paths: Paths;
  components: { schemas: Record<string, Schema> };
}

const wholeBody = { name: "body", place: "body", kind: "json", required: true, isWhole: true } as const;

class Catalogue {
  readonly #document: Document;

  constructor(document: Document) {
    this.#document = document;
  }

  #resolved(schema: Schema): Schema {
    const name = schema.$ref?.split("/").at(-1);
    return name === undefined ? schema : { ...this.#document.components.schemas[name], ...schema };
  }

  #kindOf(given: Schema): { kind: FieldKind; choices?: readonly string[] } {
    const schema = this.#resolved(given);
    const { enum: words, type, items } = schema;
    const constants = (schema.anyOf ?? []).map((one) => one.const);
    if (constants.length > 0 && constants.every((one) => typeof one === "string"))
      return { kind: "choice", choices: constants };
    if (words?.every((one) => typeof one === "string"))
      return { kind: "choice", choices: words.filter((one) => !one.endsWith("_UNSPECIFIED")) };
    if (type === "array" && items) {
      const inner = this.#kindOf(items);
      if (inner.kind === "choice") return { kind: "words", choices: inner.choices! };
      return { kind: inner.kind === "text" ? "texts" : "json" };
    }
    if (type === "string") return { kind: "text" };
    if (type === "boolean") return { kind: "switch" };
    if (type === "integer" || type === "number") return { kind: type };
    return { kind: "json" };
  }

  #field(name: string, place: OperationField["place"], required: boolean, schema: Schema): OperationField {
    const { default: fallback, description = "" } = this.#resolved(schema);
    const about = description.split(/\n\n/, 1)[0]!.replaceAll("\n", " ");
    return {
      ...{ name, place, ...this.#kindOf(schema), required, about },
      ...(fallback !== undefined && { fallback }),
    };
  }

  /** The fields of a way in: parameters of the path, the query and headers, and what the body holds. */
  #fieldsAt(path: string, method: string): OperationField[] {
    const { parameters = [], requestBody } =
      this.#document.paths[path.replace("...}", "}")]![method.toLowerCase()]!;
    const beside = parameters
      .filter((one) => one.$ref === undefined)
      .map(({ name, in: place, required, description = "", schema }) =>
        this.#field(name, place, required, { ...schema, description }),
      );
    const content = requestBody?.content ?? {};
    if ("application/octet-stream" in content)
      return [
        ...beside,
        { name: "body", place: "body", kind: "bytes", required: true, about: "What is sent, as it is." },
      ];
    const body = Object.values(content)[0];
    if (!body) return beside;
    const whole = this.#resolved(body.schema ?? {});
    const { properties = {}, required = [], description = "The document." } = whole;
    if (Object.keys(properties).length === 0 && whole.additionalProperties !== false)
      return [...beside, { ...wholeBody, about: description }];
    const within = Object.entries(properties).map(([name, schema]) => {
      const field = this.#field(name, "body", required.includes(name), schema);
      const isTaken = beside.some((one) => one.name === name);
      return isTaken ? { ...field, name: `new_${name}`, wire: name } : field;
    });
    return [...beside, ...within];
  }

  /** REST, by the routes that share the first one's method; the longest path first. */
  #byRest(operation: Operation): Way | undefined {
    if (operation.mode !== "unary") return undefined;
    const routes = restBindings(operation).map(({ route, raw }) => ({ ...parseRoute(route), raw }));
    const [first] = routes;
    if (!first) return undefined;
    const same = routes.filter(({ method }) => method === first.method);
    const paths = same.map(({ path }) => path).toSorted((a, b) => b.length - a.length);
    const known = new Map<string, OperationField>();
    for (const path of paths)
      for (const field of this.#fieldsAt(path, first.method))
        if (!known.has(field.name))
          known.set(field.name, { ...field, required: field.required && paths.length === 1 });
    const answers = Object.entries(
      this.#document.paths[first.path.replace("...}", "}")]![first.method.toLowerCase()]!.responses,
    );
    const success = answers.find(([status]) => status.startsWith("2"))?.[1];
    return {
      method: first.method as CataloguedOperation["method"],
      paths,
      fields: [...known.values()],
      ...(first.raw && { takesBytes: true }),
      ...(operation.name === "orgs.export" && success && { answersBytes: true }),
    };
  }

  #byMethod(operation: Operation): Way | undefined {
    const [binding] = methodBindings(operation).toSorted(
      (a, b) => b.method.input.fields.length - a.method.input.fields.length,
    );
    if (!binding) return undefined;
    const path = `/${binding.method.parent.typeName}/${binding.method.name}`;
    return { method: "POST", paths: [path], fields: this.#fieldsAt(path, "POST") };
  }

  #bySocket(operation: Operation): Way | undefined {
    const socket = operation.mode === "watch" ? socketOf(operation) : undefined;
    return socket && { method: "GET", paths: [socket.path], fields: this.#fieldsAt(socket.path, "GET") };
  }

  /** The way that takes the most fields: nothing that an operation takes is out of reach. */
  entryOf(operation: Operation): CataloguedOperation {
    const ways = [this.#byMethod(operation), this.#byRest(operation), this.#bySocket(operation)];
    // REST tells more of what takes nothing: a probe, for example.
    if (ways.every((one) => one === undefined || one.fields.length === 0)) ways.reverse();
    const [way] = ways.filter((one) => one !== undefined).toSorted((a, b) => countOf(b) - countOf(a));
    if (!way) throw new Error(`${operation.name} has no way in`);
    const { name, summary, action, reads = false, mode } = operation;
    const items = this.#itemsOf(way);
    return {
      ...{ name, about: summary, action: action ?? "public", reads, mode, ...way },
      ...(items !== undefined && { items }),
    };
  }

  /** The field of the answer with the list, where the others only count it or lead to its next page. */
  #itemsOf({ paths, method }: Way): string | undefined {
    const { responses } = this.#document.paths[paths[0]!.replace("...}", "}")]![method.toLowerCase()]!;
    const success = Object.entries(responses).find(([status]) => status.startsWith("2"))?.[1];
    const schema = Object.values(success?.content ?? {})[0]?.schema;
    const { properties = {} } = this.#resolved(schema ?? {});
    const names = Object.keys(properties);
    const lists = names.filter((name) => properties[name]!.type === "array");
    const beside = names.filter((name) => !lists.includes(name) && !besideList.test(name));
    return lists.length === 1 && beside.length === 0 ? lists[0] : undefined;
  }
}

const besideList =
  /^(count|total|total_?count|next_?cursor|has_?next|has_?prev|truncated|hidden|limit|offset)$/i;

type Way = Pick<CataloguedOperation, "method" | "paths" | "fields" | "takesBytes" | "answersBytes">;

/** Twins of a field for other spellings take nothing more. */
const countOf = ({ fields }: Way): number => fields.filter(({ name }) => !name.endsWith("Value")).length;

/** The file's text: a line an operation, so that a change reads as one. */
export function catalogueText(registry: readonly Operation[]): string {
  const catalogue = new Catalogue(openApiDocument(registry, "") as unknown as Document);
  const entries = registry
    .map((operation) => catalogue.entryOf(operation))
    .toSorted((a, b) => (a.name < b.name ? -1 : 1));
  return `[\n${entries.map((one) => JSON.stringify(one)).join(",\n")}\n]\n`;
}

export async function writeCatalogue(): Promise<void> {
  const server = await startTestServer({ engine: "libsql" });
  try {
    await Bun.write(cataloguePath, catalogueText(server.running.registry));
  } finally {
    await server.stop();
  }
}
