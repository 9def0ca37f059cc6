import type { Law } from "./tidy-law.ts";
import type { Rule } from "./tidy-rules.ts";
import { codeOf, lineAt, type Source } from "./tidy-source.ts";

const logCalls = /\blog\??\.(?:debug|info|warn|error)\(/g;

/** Users are told to look for this line. */
const stated = new Set(["BOOTSTRAP_ADMIN_KEY_ISSUED"]);
const eventName = /^[a-z_]+(\.[a-z_]+)+$/;
const literals = /"([^"]*)"|'([^']*)'|`([^`]*)`/g;

const anError = /(?:error|cause|failure|fault|trouble)/.source;
/** An error that is not passed as `error` itself, and so loses its stack and its cause, or hides under another name. */
const spoiltErrors = [
  new RegExp(`\\bString\\(\\s*${anError}\\b`),
  new RegExp(`\\b${anError}\\b(?: as \\w+\\))?\\??\\.message\\b`),
  /\berror:\s*(?:message\b|String\(|[\w.?]+\.message\b)/,
  new RegExp(`\\b(?!error:)\\w+:\\s*${anError}\\s*[,}]`),
  /[{,]\s*(?:cause|failure|fault|trouble)\s*[,}]/,
];

interface LogCall {
  line: number;
  /** The first argument as written. */
  event: string;
  /** The other arguments, strings blanked. */
  fields: string;
}

function logCallsOf({ text }: Source): LogCall[] {
  const code = codeOf(text);
  return [...code.matchAll(logCalls)].map((match) => {
    const from = match.index + match[0].length;
    let comma: number | undefined;
    let at = from;
    for (let depth = 0; at < code.length; at++) {
      const one = code[at]!;
      if (depth === 0 && one === ")") break;
      if (depth === 0 && one === ",") comma ??= at;
      if ("([{".includes(one)) depth++;
      if (")]}".includes(one)) depth--;
    }
    const end = comma ?? at;
    return { line: lineAt(text, match.index), event: text.slice(from, end), fields: code.slice(end, at) };
  });
}

/** The SDK and the demo log sentences for the people who run them. */
const isOurs = ({ path }: Source) => !path.startsWith("src/sdk/") && !path.startsWith("src/demo/");

/** Operators search and count lines by the event's name; of an error they need the stack and the cause. */
const logBreaches: Rule = (sources) =>
  sources.filter(isOurs).flatMap((source) =>
    logCallsOf(source).flatMap(({ line, event, fields }) => {
      const place = `${source.path}:${line}`;
      const names = [...event.matchAll(literals)]
        .map(([, double, single, template]) =>
          (double ?? single ?? template)!.replaceAll(/\$\{[^}]*\}/g, "x"),
        )
        .filter((name) => !eventName.test(name) && !stated.has(name));
      const spoilt = spoiltErrors.some((pattern) => pattern.test(fields));
      return [
        ...names.map((name) => `${place}: a line of the log is named part.event: ${name}`),
        ...(spoilt ? [`${place}: an error is logged whole, as \`error\``] : []),
      ];
    }),
  );

export const logLaw: Law = {
  name: "lines of the log are named part.event, and have errors whole",
  rule: logBreaches,
  bad: [
    ["src/edge/http.ts", `\nlog.warn("failed", { error });`, 2],
    ["src/edge/http.ts", `this.#deps.log.info("http.requestFailed");`, 1],
    ["src/edge/http.ts", `log?.error(late ? "http.late" : "Too late");`, 1],
    ["src/app/engine.ts", `log.info(\`\${part} fired\`);`, 1],
    ["src/edge/http.ts", `log.warn("http.failed", {\n  path,\n  reason: error.message,\n});`, 1],
    ["src/edge/http.ts", `log.warn("http.failed", { reason: (error as Error).message });`, 1],
    ["src/edge/http.ts", `log.warn("http.failed", { error: String(error) });`, 1],
    ["src/edge/http.ts", `log.warn("http.failed", { error: message });`, 1],
    ["src/edge/http.ts", `log.warn("http.failed", { reason: cause });`, 1],
    ["src/edge/http.ts", `log.warn("http.failed", { path, cause });`, 1],
  ],
  good: [
    ["src/edge/http.ts", `log.warn("http.failed", { path, error });\nlog.info(event, fields);`],
    ["src/edge/http.ts", `log.warn(late ? "http.late" : "http.cut_off", { error: cause });`],
    ["src/store/postgres.ts", `log.debug("store.notice", { code: notice.code, message: notice.message });`],
    ["src/app/engine.ts", `log.info(\`cron.\${frame.leaf}\`, { ...frame });`],
    ["src/domain/access/keys/bootstrap.ts", `log.info("BOOTSTRAP_ADMIN_KEY_ISSUED", { key_id: id });`],
    ["src/sdk/worker/worker.ts", `log.warn("the server cannot be reached", { reason: error.message });`],
  ],
};
