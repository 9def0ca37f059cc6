interface Builtins {
  http: typeof import("node:http");
  https: typeof import("node:http");
  fs: typeof import("node:fs");
  "fs/promises": typeof import("node:fs/promises");
}

/**
 * A module of Node, asked by name at run time, so that what is built for browsers names none. Undefined in
 * browsers and on Node before 20.16.
 */
const builtin = <Name extends keyof Builtins>(name: Name): Builtins[Name] | undefined =>
  (
    globalThis.process as { getBuiltinModule?: (name: Name) => Builtins[Name] } | undefined
  )?.getBuiltinModule?.(name);

export const nodeHttp = (isTls: boolean) => builtin(isTls ? "https" : "http");

export const nodeFs = () => builtin("fs");

/** The text of the program's own module; empty where it cannot be read. */
export async function ownModule(): Promise<string> {
  const path = globalThis.process?.argv?.[1];
  if (!path) return "";
  return (
    (await builtin("fs/promises")
      ?.readFile(path, "utf8")
      .catch(() => undefined)) ?? ""
  );
}
