type Builtin = typeof import("node:http");

/**
 * Node's own HTTP, asked by name at run time, so that what is built for browsers names no module of Node. Undefined in browsers
 * and on Node before 20.16.
 */
export const nodeHttp = (isTls: boolean): Builtin | undefined =>
  (globalThis.process as { getBuiltinModule?: (name: string) => Builtin } | undefined)?.getBuiltinModule?.(
    isTls ? "https" : "http",
  );
