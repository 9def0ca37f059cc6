import { KindGuard, type TObject, type TSchema } from "@sinclair/typebox";
import { socketOf } from "../../src/edge/openapi.ts";
import { socketPath } from "../../src/edge/sockets.ts";
import type { Operation } from "../../src/kit/operation.ts";
import type { SocketFrame } from "../../src/kit/socket-binding.ts";

/** A frame that an operation binds. */
export interface BoundFrame extends SocketFrame {
  operation: Operation;
  from: "client" | "server";
  type: string;
  /** Of the socket. */
  path: string;
}

export const everyFrame = (registry: readonly Operation[]): BoundFrame[] =>
  registry.flatMap((operation) => {
    const { client = {}, server = {}, path = "" } = socketOf(operation) ?? {};
    const bound = (from: BoundFrame["from"], frames: Record<string, SocketFrame>) =>
      Object.entries(frames).map(([type, frame]) => ({ ...frame, operation, from, type, path }));
    return [...bound("client", client), ...bound("server", server)];
  });

/** `replay?`: with a question mark where the frame may lack it. */
const fieldsOf = ({ properties, required = [] }: TObject): [string, TSchema][] =>
  Object.entries(properties).map(([name, schema]) => [required.includes(name) ? name : `${name}?`, schema]);

/** What a field holds, on one line. */
export function shapeOf(schema: TSchema): string {
  if (KindGuard.IsObject(schema))
    return `{${fieldsOf(schema)
      .map(([name, field]) => `${name}: ${shapeOf(field)}`)
      .join(", ")}}`;
  if (KindGuard.IsArray(schema)) return `${shapeOf(schema.items)}[]`;
  if (KindGuard.IsUnion(schema)) return schema.anyOf.map(shapeOf).join("|");
  if (KindGuard.IsLiteral(schema)) return String(schema.const);
  return schema.format ?? schema.type ?? "any";
}

/** Every field by its whole name, objects before what they hold. */
function rowsOf(schema: TSchema, place: string): string[][] {
  const within = (name: string, field: TSchema): string[][] => {
    const isDeep = KindGuard.IsObject(field) || KindGuard.IsArray(field);
    const kind = KindGuard.IsObject(field) ? "object" : KindGuard.IsArray(field) ? "array" : shapeOf(field);
    const row = ["", `\`${place}${name}\``, kind, field.description ?? ""];
    return isDeep ? [row, ...rowsOf(field, `${place}${name.replace("?", "")}.`)] : [row];
  };
  if (KindGuard.IsArray(schema)) return rowsOf(schema.items, place.replace(/\.$/, "[]."));
  return KindGuard.IsObject(schema) ? fieldsOf(schema).flatMap(([name, field]) => within(name, field)) : [];
}

/** Rows of the reference: a frame, then its fields. */
export const frameRows = (registry: readonly Operation[]): string[][] =>
  everyFrame(registry).flatMap(({ operation, from, type, path, about, schema }) => {
    const where = path === socketPath ? "" : ` of \`${path}\``;
    const sender = from === "client" ? `the client, with \`${operation.action}\`` : `the server${where}`;
    return [[`\`${type}\``, "", `from ${sender}`, about], ...rowsOf(schema, "")];
  });
