import { stated } from "../kit/cases.ts";
import { shownText } from "../kit/log-lines.ts";
import { redactText } from "../kit/redact.ts";
import {
  boolean,
  integer,
  line,
  matching,
  oneUrl,
  readSettings,
  setting,
  settingsHelp,
  type Values,
} from "../kit/setting.ts";
import { createClient, type Delivery, type Subscription, SvcError } from "../sdk/index.ts";
import { asksForHelp } from "./common-flags.ts";
import { serverDefault, type Target, targetOf } from "./connection.ts";
import { exitCodes, type Io, isUnreachable, withPointer } from "./io.ts";

/** For programs: every field that is there, in one order. */
const jsonLine = ({ topic, sequence, eventId, timestamp, metadata, data }: Delivery): string =>
  JSON.stringify({ topic, sequence, eventId, timestamp, metadata, data });

const dim = "\u001b[2m";
const strong = "\u001b[1m";
const plain = "\u001b[0m";

/** For people: local time, topic, sequence, data, and metadata when there is any. */
export const prettyLine = (hasColours: boolean) => {
  const paint = (colour: string, text: string) => (hasColours ? colour + text + plain : text);
  return ({ topic, sequence, timestamp, metadata, data }: Delivery): string => {
    const at = timestamp === undefined ? "" : new Date(timestamp);
    const two = (value: number, digits = 2) => String(value).padStart(digits, "0");
    const time =
      at === ""
        ? "--:--:--.---"
        : `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}.${two(at.getMilliseconds(), 3)}`;
    const place = sequence === undefined ? "" : ` ${paint(dim, `#${sequence}`)}`;
    const json = (value: unknown) => shownText(JSON.stringify(value));
    const more = metadata && Object.keys(metadata).length > 0 ? `  ${paint(dim, json(metadata))}` : "";
    return `${paint(dim, time)}  ${paint(strong, shownText(topic))}${place}  ${json(data)}${more}`;
  };
};

const tailSettings = {
  url: setting({
    flag: "--server",
    env: "SVC_SERVER_URL",
    parse: oneUrl("http", "https"),
    fallback: undefined,
    otherwise: serverDefault,
    about: "The server.",
  }),
  environment: setting({
    flag: "--env",
    env: "SVC_ENV",
    parse: line("NAME"),
    fallback: undefined,
    otherwise: "the key's own",
    about: "Name or id of the environment.",
  }),
  apiKey: setting({
    env: "SVC_API_KEY",
    parse: line("KEY"),
    fallback: undefined,
    secret: true,
    about: "The key; not a flag, as others on the machine could read it.",
  }),
  keyFile: setting({
    flag: "--key-file",
    parse: line("FILE"),
    fallback: undefined,
    about: "A file with the key instead: alone, or as the server's first start writes it.",
  }),
  filter: setting({
    flag: "--filter",
    parse: line("CEL"),
    fallback: undefined,
    about: "Only deliveries for which this is true, of data, metadata and topic: 'data.total > 10'.",
  }),
  replay: setting({
    flag: "--replay",
    parse: integer(0, 1_000),
    fallback: 0,
    about: "How many past deliveries of each pattern come first.",
  }),
  after: setting({
    flag: "--after",
    parse: matching(/^\d{1,20}$/, "a sequence", "SEQUENCE"),
    fallback: undefined,
    about: "Begin after this sequence of the log; 0 is the oldest that is kept.",
  }),
  count: setting({
    flag: "--count",
    parse: integer(1, 1_000_000_000),
    fallback: undefined,
    about: "End after this many deliveries.",
  }),
  topicOnly: setting({ flag: "--topic-only", parse: boolean, fallback: false, about: "Without data." }),
  json: setting({ flag: "--json", parse: boolean, fallback: false, about: "One JSON object a line." }),
};

type TailValues = Values<typeof tailSettings>;

export const tailHelp = (): string => `svc tail PATTERN...: follow what happens, until ^C.

  svc tail 'order.>'                     events by name; * is one segment, a last > one or more
  svc tail 'entity:order.>' --replay 5   events of streams
  svc tail topic:news 'system.run.>'     developer topics; what happens to runs, functions, crons, ...

It reconnects by itself and goes on where it was. Exit status: 0 after ^C or --count deliveries, 2 for wrong arguments,
1 when the server refuses, 3 when it does not answer at the start.

${settingsHelp(tailSettings)}`;

export interface TailOutcome {
  code: 0 | 1 | 2 | 3;
  reasons: readonly string[];
}

/** Whether the server refuses the arguments and not the caller. */
const refusesArguments = ({ status, code }: SvcError): boolean =>
  status === 400 || code === "invalid_argument" || code === "failed_precondition";

async function tail(argv: readonly string[], profile: string | undefined, io: Io): Promise<TailOutcome> {
  const { signal } = io;
  const patterns: string[] = [];
  const outcome = readSettings(tailSettings, {
    ...{ argv, environment: {}, elsewhere: () => true, words: patterns },
  });
  const errors = outcome.ok ? [] : outcome.errors;
  if (patterns.length === 0) errors.push("PATTERN is needed: what to follow, such as 'order.>'");
  if (!outcome.ok || errors.length > 0) return { code: 2, reasons: errors };
  const { values } = outcome;
  if (values.after !== undefined && values.replay > 0)
    return { code: 2, reasons: ["--after and --replay: choose one"] };
  const { url: server, environment: env, keyFile } = values;
  const target = targetOf(
    {
      ...stated({ server, env, keyFile, profile }),
    },
    io,
  );
  const over = new AbortController();
  const end = () => over.abort();
  if (signal.aborted) end();
  signal.addEventListener("abort", end, { once: true });
  try {
    return await follow(patterns, values, { target, io, signal: over.signal, end });
  } catch (error) {
    io.note(error instanceof Error ? error.message : String(error));
    return { code: 1, reasons: [] };
  } finally {
    signal.removeEventListener("abort", end);
    end();
  }
}

async function follow(
  patterns: readonly string[],
  values: TailValues,
  { target, io, signal, end }: { target: Target; io: Io; signal: AbortSignal; end: () => void },
): Promise<TailOutcome> {
  const { out, note, isTerminal } = io;
  const { url, key = "", environment } = target;
  const client = createClient({ url, apiKey: key, ...(environment !== undefined && { environment }) });
  let left = values.count ?? Number.POSITIVE_INFINITY;
  let failed: SvcError | undefined;
  const lineOf = values.json ? jsonLine : prettyLine(isTerminal);
  const subscriptions: Subscription[] = [];
  const fail = (error: SvcError) => {
    failed ??= error;
    end();
  };
  for (const pattern of patterns) {
    let wasLive = false;
    const options = {
      replay: values.replay,
      topicOnly: values.topicOnly,
      after: values.after,
      signal,
      ...(values.filter !== undefined && { filter: values.filter }),
    };
    const onNotice: NonNullable<Parameters<typeof client.subscribe>[1]>["onNotice"] = (notice) => {
      if (notice.type === "live") wasLive = true;
      else if (notice.type === "dropped") note(`${notice.count} frames were dropped: too many at once`);
      else if (notice.type === "waiting") {
        const { error = new SvcError("unreachable", "the server ended the subscription") } = notice;
        if (wasLive) note(`${error.message}; going on in ${Math.ceil(notice.delayMs / 100) / 10} s`);
        // At the start a person waits: it fails at once instead of trying again.
        else fail(error);
      }
    };
    const subscription = client.subscribe(pattern, { ...options, onNotice }, async (one) => {
      if (left <= 0 || signal.aborted) return;
      left--;
      await out(`${lineOf(one)}\n`);
      if (left <= 0) end();
    });
    subscriptions.push(subscription as Subscription);
    subscription.done.catch((error) =>
      fail(error instanceof SvcError ? error : new SvcError("failed", String(error))),
    );
  }
  await Promise.allSettled(subscriptions.map(({ done }) => done));
  if (!failed) return { code: 0, reasons: [] };
  if (refusesArguments(failed)) return { code: 2, reasons: [failed.message] };
  return { code: isUnreachable(failed) ? 3 : 1, reasons: [failed.message] };
}

/** Flags that other commands share; `--url` is the old name of `--server`. The profile is taken out first. */
function shared(argv: readonly string[]): { profile?: string; rest: string[] } {
  const rest = argv.map((word) =>
    word === "-s" || word === "--url" ? "--server" : word.replace(/^--url=/, "--server="),
  );
  const at = rest.findIndex((word) => /^--profile(=|$)/.test(word));
  if (at < 0) return { rest };
  const [word = "", next] = rest.splice(at, rest[at] === "--profile" ? 2 : 1);
  return { rest, profile: word === "--profile" ? (next ?? "") : word.slice("--profile=".length) };
}

/** `svc tail` on the command line; a profile fills what neither flags nor variables say. */
export async function runTail(argv: readonly string[], io: Io): Promise<number> {
  if (argv.some(asksForHelp)) {
    await io.out(tailHelp());
    return exitCodes.ok;
  }
  const { profile, rest } = shared(argv);
  const { code, reasons } = await tail(rest, profile, io);
  for (const reason of code === exitCodes.usage ? withPointer(reasons, "svc tail --help") : reasons)
    io.note(redactText(reason));
  return code;
}
