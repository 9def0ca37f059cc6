import { redacted } from "../../kit/redact.ts";
import { mcpAnswerCharsMax } from "../limits.ts";
import { itemsOf } from "../show.ts";

/** Fields that hold what opens something; a model has no use for them. */
const secretFields = new Set([
  ...["apikey", "token", "ingesttoken", "secret", "hmacsecret", "password", "signingsecret", "newvalue"],
  ...["verifysecret", "keytext", "leasetoken", "authorization"],
]);

const isSecret = (name: string): boolean => secretFields.has(name.replaceAll(/[_-]/g, "").toLowerCase());

/** The answer without secrets, and without the fields that are dropped. */
export function withoutSecrets(value: unknown, drops: readonly string[] = []): unknown {
  if (Array.isArray(value)) return value.map((one) => withoutSecrets(one, drops));
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(
    Object.entries(value)
      .filter(([name]) => !drops.includes(name))
      .map(([name, one]) => [
        name,
        isSecret(name) && typeof one === "string" && one !== "" ? redacted : withoutSecrets(one, drops),
      ]),
  );
}

/** The answer as text of a bounded length: a list loses items from its end and says so. */
export function boundedText(answer: unknown, drops?: readonly string[]): string {
  const clean = withoutSecrets(answer ?? { done: true }, drops);
  const whole = JSON.stringify(clean, null, 1);
  if (whole.length <= mcpAnswerCharsMax) return whole;
  const list = itemsOf(clean);
  if (!list) return `${whole.slice(0, mcpAnswerCharsMax)}\n… cut: ${whole.length} characters in all`;
  const texts: string[] = [];
  let length = 0;
  for (const item of list) {
    const text = JSON.stringify(item);
    if (length + text.length > mcpAnswerCharsMax) break;
    texts.push(text);
    length += text.length;
  }
  const said = `the first ${texts.length} of ${list.length}: ask for fewer by limit, or go on by cursor`;
  if (texts.length === 0)
    return `${JSON.stringify(list[0]).slice(0, mcpAnswerCharsMax)}\n… cut, and ${list.length - 1} more`;
  return `[${texts.join(",\n")}]\n… ${said}`;
}
