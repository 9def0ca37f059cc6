import { Type } from "@sinclair/typebox";
import { invalid } from "./fault.ts";
import type { RestRequest } from "./operation.ts";

/** What a caller requires of a thing: nothing, that it does not exist, or that it is at a revision. */
export type Expected = "absent" | number | undefined;

const headerCharsMax = 1_024;
const header = (description: string, example: string) =>
  Type.Optional(Type.String({ maxLength: headerCharsMax, description, examples: [example] }));

/** Fields of an input that headers fill. */
export const expecting = {
  if_match: header("The revision that the thing must be at.", "7"),
  if_none_match: header("`*`: there must be no such thing.", "*"),
};

/** What the headers expect of the thing. */
export function conditions({ headers }: RestRequest) {
  const if_match = headers.get("if-match");
  const if_none_match = headers.get("if-none-match");
  return { ...(if_match !== null && { if_match }), ...(if_none_match !== null && { if_none_match }) };
}

const revisionText = /^(?:"(\d{1,15})"|(\d{1,15}))$/;

/** From `If-Match: 7` (or `"7"`, as the ETag of an answer is written) and `If-None-Match: *`. */
export function expectedOf(ifMatch: string | undefined, ifNoneMatch: string | undefined): Expected {
  if (ifMatch !== undefined && ifNoneMatch !== undefined)
    throw invalid("If-Match", "contradicts If-None-Match");
  if (ifNoneMatch !== undefined) {
    if (ifNoneMatch !== "*") throw invalid("If-None-Match", "must be *");
    return "absent";
  }
  if (ifMatch === undefined) return undefined;
  const [, quoted, bare] = revisionText.exec(ifMatch) ?? [];
  const revision = quoted ?? bare;
  if (revision === undefined) throw invalid("If-Match", "must be a revision");
  return Number(revision);
}

export const etagOf = (revision: number) => ({ etag: `"${revision}"` });
