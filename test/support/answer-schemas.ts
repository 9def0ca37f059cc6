import type { CataloguedOperation } from "../../src/cli/operations.ts";
import { compileSchema } from "../../src/kit/json-schema/json-schema.ts";

type Schema = Record<string, unknown>;

interface Document {
  paths: Record<
    string,
    Record<string, { responses: Record<string, { content?: Record<string, { schema?: Schema }> }> }>
  >;
  components: { schemas: Record<string, Schema> };
}

const refPrefix = "#/components/schemas/";

const refsIn = (schema: unknown): string[] =>
  [...JSON.stringify(schema).matchAll(/"\$ref":"#\/components\/schemas\/([^"]+)"/g)].map(([, name]) => name!);

/** Checks answers of operations against the server's own document. */
export function answerSchemas(document: Document) {
  const whole = (schema: Schema): string => {
    const defs: Record<string, Schema> = {};
    const unread = refsIn(schema);
    for (let name = unread.pop(); name !== undefined; name = unread.pop()) {
      if (name in defs) continue;
      defs[name] = document.components.schemas[name]!;
      unread.push(...refsIn(defs[name]));
    }
    return JSON.stringify({ ...schema, $defs: defs }).replaceAll(refPrefix, "#/$defs/");
  };
  /** What is wrong with the answer; undefined when nothing is. */
  return ({ paths, method }: CataloguedOperation, answer: unknown): string | undefined => {
    for (const path of paths) {
      const responses = document.paths[path.replace("...}", "}")]?.[method.toLowerCase()]?.responses ?? {};
      const success = Object.entries(responses).find(([status]) => status.startsWith("2"))?.[1];
      const schema = success?.content?.["application/json"]?.schema;
      if (!schema) return JSON.stringify(answer) === "{}" ? undefined : `${path} answers nothing`;
      const breach = compileSchema(whole(schema)).breachOf(answer);
      return breach && JSON.stringify(breach);
    }
    return "no path";
  };
}
