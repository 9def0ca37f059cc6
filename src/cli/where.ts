import { SvcError } from "../sdk/index.ts";
import { conditionIn, filterOf } from "../sdk/wire/attribute-conditions.ts";
import { type Asking, ask } from "./command.ts";
import { instantOf } from "./fields.ts";
import { usage } from "./io.ts";

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

/** Filters of runs by their attributes, each with the type that its name has. */
export async function attributeFilters(asking: Asking, conditions: readonly string[]): Promise<object[]> {
  const parsed = conditions.map((condition) => {
    const found = conditionIn(condition);
    if (found) return found;
    throw usage(`--where: must be NAME=VALUE, or with >, >=, < or <=, such as orderId=L22, not ${condition}`);
  });
  const types = parsed.length > 0 ? await typesOf(asking) : new Map<string, string>();
  return parsed.map((condition) => {
    const type = types.get(condition.name);
    const { text } = condition;
    try {
      return filterOf(type === "time" ? { ...condition, text: instantOf(text) } : condition, type);
    } catch (error) {
      throw error instanceof TypeError ? usage(`--where: ${error.message}`) : error;
    }
  });
}
