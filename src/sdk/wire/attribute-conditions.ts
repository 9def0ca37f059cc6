const form = /^([A-Za-z][\w.-]{0,63})(>=|<=|=|>|<)(.*)$/s;
const operators: Readonly<Record<string, string>> = {
  "=": "eq",
  ">": "gt",
  ">=": "gte",
  "<": "lt",
  "<=": "lte",
};

/** `orderId=L22`, `total>=100`: an attribute of runs and what it is compared with. */
export interface SaidCondition {
  name: string;
  op: string;
  text: string;
}

/** Undefined for a text that is no condition. */
export function conditionIn(said: string): SaidCondition | undefined {
  const [, name, operator, text] = form.exec(said) ?? [];
  return name === undefined ? undefined : { name, op: operators[operator!]!, text: text! };
}

/** What a caller who may not list names, or a name that no run has set yet, leaves to the text itself. */
function guessedType(text: string): string {
  if (/^(true|false)$/.test(text)) return "bool";
  return text !== "" && Number.isFinite(Number(text)) ? "number" : "text";
}

/** The filter of `ListRuns`, by the type that the name has. Throws a TypeError that says what it holds. */
export function filterOf({ name, op, text }: SaidCondition, type = guessedType(text)): object {
  if (type === "number") {
    if (text.trim() === "" || !Number.isFinite(Number(text)))
      throw new TypeError(`the attribute ${name} holds numbers, not ${text}`);
    return { name, op, number: Number(text) };
  }
  if (type === "bool") {
    if (!/^(true|false)$/.test(text))
      throw new TypeError(`the attribute ${name} is true or false, not ${text}`);
    return { name, op, flag: text === "true" };
  }
  return { name, op, [type]: text };
}
