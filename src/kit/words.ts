/** The words of a text, apart by a space. */
export type Words<
  Text extends string,
  Found extends string = never,
> = Text extends `${infer One} ${infer Rest}` ? Words<Rest, Found | One> : Found | Text;

/** A text whose words are fields; `never` where one is none. */
export type FieldNames<Fields, Text extends string> = Text &
  (Words<Text> extends keyof Fields ? unknown : never);
