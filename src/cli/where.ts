import { SvcError } from "../sdk/index.ts";
import { type Asking, ask } from "./command.ts";
import { instantOf } from "./fields.ts";
import { usage } from "./io.ts";

const form = /^([A-Za-z][\w.-]{0,63})(>=|<=|=|>|<)(.*)$/s;
const operators: Readonly<Record<string, string>> = {
  "=": "eq",
  ">": "gt",
  ">=": "gte",
  "<": "lt",
  "<=": "lte",
};

/** What a caller who may not list names, or a name that no run has set yet, leaves to the text itself. */
function guessedType(text: string): string {
  if (/^(true|false)$/.test(text)) return "bool";
  return text !== "" && Number.isFinite(Number(text)) ? "number" : "text";
}

function readValue(type: string, text: string, condition: string): string | number | boolean {
  if (type === "number" && (text.trim() === "" || !Number.isFinite(Number(text))))
    throw usage(`--where: ${condition}: the attribute holds numbers, not ${text}`);
  if (type === "bool" && !/^(true|false)$/.test(text))
    throw usage(`--where: ${condition}: the attribute is true or false, not ${text}`);
  if (type === "number") return Number(text);
  if (type === "bool") return text === "true";
  return type === "time" ? instantOf(text) : text;
}

async function typesOf(asking: Asking): Promise<Map<string, string>> {
  try {
    const asked = ask<{ attributes: { name: string; type: string }[] }>(asking, "attributes.list");
    const { attributes } = await asked;
    return new Map(attributes.map(({ name, type }) => [name, type]));
  } catch (error) {
    if (error instanceof SvcError && error.status === 403) return new Map();
    throw error;
  }
}

/** `orderId=L22`, `total>=100`: filters of runs by their attributes, each with the type that its name has. */
export async function attributeFilters(asking: Asking, conditions: readonly string[]): Promise<object[]> {
  const parsed = conditions.map((condition) => {
    const [, name, operator, text] = form.exec(condition) ?? [];
    if (name === undefined)
      throw usage(
        `--where: must be NAME=VALUE, or with >, >=, < or <=, such as orderId=L22, not ${condition}`,
      );
    return { condition, name, op: operators[operator!]!, text: text! };
  });
  const types = parsed.length > 0 ? await typesOf(asking) : new Map<string, string>();
  return parsed.map(({ condition, name, op, text }) => {
    const type = types.get(name) ?? guessedType(text);
    return { name, op, [type === "bool" ? "flag" : type]: readValue(type, text, condition) };
  });
}
