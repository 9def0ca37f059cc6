/** The words of a text, apart by a space. */
export type Words<
  Text extends string,
  Found extends string = never,
> = Text extends `${infer One} ${infer Rest}` ? Words<Rest, Found | One> : Found | Text;
