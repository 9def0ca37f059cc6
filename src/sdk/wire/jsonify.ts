interface WithJson {
  toJSON(...given: never): unknown;
}

/** What JSON has no word for: it is left out of objects, and null elsewhere. */
type Unwritten = undefined | symbol | ((...given: never) => unknown);

/** Keys whose values may be written. */
type WrittenKeys<Value> = {
  [Key in keyof Value]-?: Key extends symbol ? never : [Value[Key]] extends [Unwritten] ? never : Key;
}[keyof Value];

/** Keys whose values may be left out. */
type DroppedKeys<Value> = {
  [Key in WrittenKeys<Value>]: Extract<Value[Key], Unwritten> extends never ? never : Key;
}[WrittenKeys<Value>];

type JsonifiedObject<Value> = {
  [Key in Exclude<WrittenKeys<Value>, DroppedKeys<Value>>]: Jsonify<Value[Key]>;
} & { [Key in DroppedKeys<Value>]?: Jsonify<Exclude<Value[Key], Unwritten>> } extends infer Both
  ? { [Key in keyof Both]: Both[Key] }
  : never;

/**
 * A value as it comes back from JSON: a Date is text, undefined is null (and dropped from objects), a Map is
 * `{}`. `unknown` stays as it is.
 */
export type Jsonify<Value> = 0 extends 1 & Value
  ? Value
  : unknown extends Value
    ? Value
    : Value extends WithJson
      ? Jsonify<ReturnType<Value["toJSON"]>>
      : Value extends string | number | boolean | null
        ? Value
        : Value extends Unwritten
          ? null
          : [Value] extends [void]
            ? null
            : Value extends bigint
              ? never
              : Value extends ReadonlyMap<unknown, unknown> | ReadonlySet<unknown> | RegExp
                ? Record<never, never>
                : Value extends readonly unknown[]
                  ? { -readonly [Key in keyof Value]: Jsonify<Value[Key]> }
                  : Value extends object
                    ? JsonifiedObject<Value>
                    : never;
