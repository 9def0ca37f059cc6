import type { Static, TSchema } from "@sinclair/typebox";
import { TypeCompiler } from "@sinclair/typebox/compiler";
import type { Bus, Unlisten } from "./bus.ts";

/** Whether other nodes were heard of lately, so that a hint has a reader. */
export const hasOthers = (bus: Pick<Bus, "kind" | "present">): boolean =>
  bus.kind === "nats" && bus.present().length > 1;

const decoder = new TextDecoder();

/**
 * Reads messages of one shape. A message of another throws, and the bus logs it: a node of another version, or a
 * stranger on the bus, must not hand values of unknown types to the rest of the server. Fields that the shape
 * does not name pass, as newer nodes may send them.
 */
export function messageReader<Shape extends TSchema>(shape: Shape): (payload: Uint8Array) => Static<Shape> {
  const check = TypeCompiler.Compile(shape);
  return (payload) => {
    const message: unknown = JSON.parse(decoder.decode(payload));
    if (check.Check(message)) return message;
    const first = check.Errors(message).First();
    throw new Error(`message of unknown form: ${first?.path} ${first?.message}`);
  };
}

/** Hints of one shape on one subject. */
export interface Channel<Message> {
  /** May be lost; delivered to listeners of this node too. */
  publish(message: Message): void;
  listen(handler: (message: Message) => void): Unlisten;
}

export function channel<Shape extends TSchema>(
  bus: Pick<Bus, "hint" | "onHint">,
  subject: string,
  shape: Shape,
): Channel<Static<Shape>> {
  const read = messageReader(shape);
  return {
    publish: (message) => bus.hint(subject, JSON.stringify(message)),
    listen: (handler) => bus.onHint(subject, (payload) => handler(read(payload))),
  };
}
