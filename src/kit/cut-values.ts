import { Type } from "@sinclair/typebox";

/** A value that an answer leaves out, as it is larger than the caller asked for. */
export interface CutValue {
  /** The one that would have it, as the wire spells it. */
  field: string;
  /** Of its JSON text. */
  bytes: number;
  /** How the text begins: as much as was asked for. */
  begins: string;
}

/** What a caller asks for; whole values where it is left out or 0. */
export const valueBytes = Type.Optional(Type.Integer({ minimum: 0, maximum: 2_147_483_647 }));

export const CutValueRecord = Type.Object({
  field: Type.String({ description: "The field that would have the value." }),
  bytes: Type.Integer({ description: "How large its JSON text is." }),
  begins: Type.String({ description: "How that text begins." }),
});

/** As much of the text as so many bytes hold, in whole characters. */
export const beginningOf = (text: string, bytesMax: number): string =>
  text.slice(0, new TextEncoder().encodeInto(text, new Uint8Array(bytesMax)).read);

/**
 * The row with `instead` for each text of JSON that is larger than `bytesMax`, and word of it. `fields` names
 * the texts as the wire does.
 */
export function cutValues<
  Name extends string,
  Row extends { [name in Name]: string | null },
  Instead extends string | null,
>(
  row: Row,
  fields: Readonly<Record<Name, string>>,
  { bytesMax = 0, instead }: { bytesMax: number | undefined; instead: Instead },
): Row & { cutValues?: CutValue[] } {
  if (bytesMax === 0) return row;
  const cut: CutValue[] = [];
  const left: Partial<Record<Name, Instead>> = {};
  for (const name of Object.keys(fields) as Name[]) {
    const text = row[name];
    const bytes = text === null ? 0 : Buffer.byteLength(text);
    if (text === null || bytes <= bytesMax) continue;
    left[name] = instead;
    cut.push({ field: fields[name], bytes, begins: beginningOf(text, bytesMax) });
  }
  return cut.length === 0 ? row : { ...row, ...left, cutValues: cut };
}
