import type { Environment } from "@marcbachmann/cel-js";

/** Of the library's evaluator, on which it calls registered functions. */
interface Evaluator {
  /** `list<dyn>` for every list. */
  debugType(value: unknown): unknown;
  /** The same down to the first value of the innermost list; calls itself. */
  debugTypeDeep(value: unknown): unknown;
}

/**
 * Types are told apart so deep. The library goes down to the end, makes a name as long as the data is deep of
 * every level, and keeps all of them: 10,000 brackets took it 11 s and half a gigabyte.
 */
const typeDepthMax = 8;

function boundTypesOf(evaluator: Evaluator): void {
  const deep = evaluator.debugTypeDeep.bind(evaluator);
  let depth = 0;
  evaluator.debugTypeDeep = (value) => {
    if (depth >= typeDepthMax) return evaluator.debugType(value);
    depth++;
    try {
      return deep(value);
    } finally {
      depth--;
    }
  };
}

/** What is deeper than that is `dyn` to all programs of the environment. */
export function boundTypes(environment: Environment): void {
  let isBound = false;
  const bind = function (this: Evaluator): boolean {
    if (!isBound) boundTypesOf(this);
    isBound = true;
    return true;
  };
  environment.registerFunction("svc_bind_types(): bool", bind as () => boolean);
  environment.evaluate("svc_bind_types()");
  if (!isBound) throw new Error("the library does not call its functions on its evaluator any more");
}
