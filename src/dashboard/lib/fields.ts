import { instantOf, textOf } from "./format.ts";

type NamesIn<Text extends string, Found extends string = never> = Text extends `${infer One} ${infer Rest}`
  ? NamesIn<Rest, Found | One>
  : Found | Text;

/** Reads those fields of a message that hold the same kind of thing, by their names apart by a space. */
const reading =
  <Value>(read: (value: unknown) => Value) =>
  <const Text extends string>(message: Record<string, unknown>, names: Text) =>
    Object.fromEntries(names.split(" ").map((name) => [name, read(message[name])])) as Record<
      NamesIn<Text>,
      Value
    >;

export const texts = reading(textOf);
export const wholes = reading((value) => Number(value ?? 0));
export const instants = reading((value) => instantOf(textOf(value)));
