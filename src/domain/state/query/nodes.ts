import { Fault } from "../../../kit/fault.ts";

export type NodeFields = Record<string, unknown>;

/** A node of the parser's tree: its kind, and its fields as they are in JSON. */
export interface SqlNode {
  kind: string;
  fields: NodeFields;
}

/** A text that is not admitted; `field` is the input that holds it. */
export const refused = (field: string, about: string): Fault =>
  new Fault("invalid_argument", `${field}: ${about}`, { field });

/** Where a node stood in the text: never a part of what it says. */
const places = new Set(["location", "rexpr_list_start", "rexpr_list_end", "stmt_location", "stmt_len"]);

export function nodeOf(raw: unknown): SqlNode {
  const [entry, ...others] = Object.entries((raw ?? {}) as Record<string, unknown>);
  if (!entry || others.length > 0) throw new Error("the parser answered a node of no kind");
  return { kind: entry[0], fields: entry[1] as Record<string, unknown> };
}

export const listOf = (raw: unknown): unknown[] => (Array.isArray(raw) ? raw : []);

/** A writer names the fields of a node that it understands; a node with another field is not admitted. */
export class NodeReader {
  readonly field: string;

  constructor(field: string) {
    this.field = field;
  }

  refuse(about: string): Fault {
    return refused(this.field, about);
  }

  only(what: string, fields: NodeFields, known: readonly string[]): void {
    for (const [name, value] of Object.entries(fields))
      if (!known.includes(name) && !places.has(name) && value !== false)
        throw this.refuse(`${what} with ${name.replaceAll("_", " ")} is not allowed`);
  }

  /** The text of a name. */
  name(raw: unknown): string {
    const { kind, fields } = nodeOf(raw);
    if (kind !== "String" || typeof fields.sval !== "string") throw this.refuse("a name is expected");
    return fields.sval;
  }

  /** The parts of a name that may stand in the database's own schema. */
  ownName(raw: unknown): string {
    const names = listOf(raw).map((part) => this.name(part));
    if (names.length === 2 && names[0] === "pg_catalog") return names[1]!;
    if (names.length !== 1) throw this.refuse(`"${names.join(".").slice(0, 100)}" has a schema: name none`);
    return names[0]!;
  }
}

/** `A_ArrayExpr` for people. */
export const wordsOf = (kind: string): string =>
  kind.startsWith("AEXPR_") ? kind.slice(6).toLowerCase().replaceAll("_", " ") : kind.replace(/^A_/, "");
