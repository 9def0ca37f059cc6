import list from "./operations.json" with { type: "json" };

/** `json`: any value, `texts`: any number of texts, `words`: any number of `choices`, `bytes`: as they are */
export type FieldKind =
  | "bytes"
  | "text"
  | "integer"
  | "number"
  | "switch"
  | "choice"
  | "texts"
  | "words"
  | "json";

/** One field of what an operation takes. */
export interface OperationField {
  name: string;
  place: "path" | "query" | "header" | "body";
  /** As the body spells it, where the path has a field of that name. */
  wire?: string;
  kind: FieldKind;
  required: boolean;
  /** The body is the value, and no object around it. */
  isWhole?: boolean;
  about: string;
  choices?: readonly string[];
  /** As the server has it when the field is left out. */
  fallback?: unknown;
}

/** An operation of the server as a caller sees it, by the way in that takes the most of its fields. */
export interface CataloguedOperation {
  name: string;
  about: string;
  /** The action that the caller must hold; `public` for none. */
  action: string;
  /** The operation changes nothing, so that it may be asked twice. */
  reads: boolean;
  /** `stream`: an answer of many messages; `watch`: a WebSocket; `duplex`: messages in both directions. */
  mode: "unary" | "stream" | "watch" | "duplex";
  method: "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
  /** The longest first: the one is asked whose parameters are all given. */
  paths: readonly string[];
  fields: readonly OperationField[];
  /** The field of the answer with the list that it is. */
  items?: string;
  /** The body is sent as the bytes that it is. */
  takesBytes?: boolean;
  /** The answer is not JSON. */
  answersBytes?: boolean;
}

/** Written from the server's registry by `bun run refresh`: the command line lacks no operation. */
export const operations = list as readonly CataloguedOperation[];

const byName = new Map(operations.map((one) => [one.name, one]));

export const findOperation = (name: string): CataloguedOperation | undefined => byName.get(name);

export function operationNamed(name: string): CataloguedOperation {
  const found = byName.get(name);
  if (!found) throw new Error(`no operation ${name} in operations.json: run \`bun run refresh\``);
  return found;
}

/** `--from-step` of `fromStep` and `from_step`. */
export const flagOf = (name: string): string =>
  name
    .replaceAll(/([a-z0-9])([A-Z])/g, "$1-$2")
    .replaceAll(/[_.]/g, "-")
    .toLowerCase();

/** `running` of `RUN_STATUS_RUNNING`: what the constants of an enum do not share. */
export function shortWords(choices: readonly string[]): string[] {
  const [first = ""] = choices;
  let shared = first.lastIndexOf("_") + 1;
  while (shared > 0 && !choices.every((one) => one.startsWith(first.slice(0, shared))))
    shared = first.lastIndexOf("_", shared - 2) + 1;
  return choices.map((one) => one.slice(shared).toLowerCase());
}

/** The word that the server takes for what a person wrote; undefined when there is none. */
export function choiceOf(choices: readonly string[], text: string): string | undefined {
  const wanted = text.toLowerCase().replaceAll("-", "_");
  const at = shortWords(choices).indexOf(wanted);
  return choices[at] ?? choices.find((one) => one.toLowerCase() === wanted);
}
