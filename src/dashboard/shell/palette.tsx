import { useEffect, useId, useMemo, useState } from "preact/hooks";
import { conditionIn } from "../../sdk/wire/attribute-conditions.ts";
import { rpc } from "../lib/api.ts";
import { isUtc } from "../lib/format.ts";
import { nextTheme, nextZone, recent } from "../lib/prefs.ts";
import { decoded, go, hrefOf } from "../lib/router.ts";
import { listRuns, type RunFilters, type RunView, readAttributes } from "../lib/runs.ts";
import { may, signOut, viewer } from "../lib/session.ts";
import { attempt } from "../lib/toasts.ts";
import { isOffered, offeredPages, type PageEntry, pageAt, pages } from "../pages.tsx";
import { Text } from "../ui/basics.tsx";
import { Dialog } from "../ui/dialog.tsx";
import { Icon, type IconName } from "../ui/icons.tsx";
import { lookOf } from "../ui/status.tsx";

interface PaletteCommand {
  key: string;
  icon: IconName;
  name: string;
  note?: string;
  act: () => void;
}

const searchPauseMs = 150;
const foundMax = 6;

/** The page of things whose ids begin so: `run_…` is a run, `run_…:charge:0` a step of it. */
function commandOfId(id: string): PaletteCommand | undefined {
  const entry = pages.find(({ one }) => one?.prefix && id.startsWith(one.prefix));
  const [runId = "", ...step] = id.split(":");
  if (entry?.path !== "runs" || step.length === 0) return commandOf(entry, id);
  const ofRun = commandOf(entry, runId);
  return ofRun && { ...ofRun, name: id, note: "Step", act: () => go(hrefOf(["runs", runId], { step: id })) };
}

/** What the page that is open offers in its head, where its dialogs stand, too. */
const actionsOfPage = (): PaletteCommand[] =>
  [...document.querySelectorAll<HTMLButtonElement>(".page-actions button:enabled:not(dialog *)")].map(
    (button) => ({
      ...{
        key: `action ${button.textContent}`,
        icon: "play",
        name: button.textContent,
        note: "On this page",
      },
      act: () => button.click(),
    }),
  );

function commandOfRecent(noted: string): PaletteCommand | undefined {
  const [page = "", id = ""] = noted.split("/");
  return commandOf(pageAt(page), decoded(id));
}

function commandOf(entry: PageEntry | undefined, id: string): PaletteCommand | undefined {
  if (!entry || !isOffered(entry)) return undefined;
  return {
    key: `id ${id}`,
    icon: entry.icon,
    name: id,
    note: entry.name,
    act: () => go(hrefOf([entry.path, id])),
  };
}

function fixedCommands(onHelp: () => void): PaletteCommand[] {
  return [
    ...offeredPages().map(({ path, name, icon, key }) => ({
      ...{ key: `page ${path}`, icon, name, note: `g ${key}`, act: () => go(hrefOf([path])) },
    })),
    { key: "theme", icon: "moon", name: "Change the theme", note: "t", act: nextTheme },
    {
      ...{ key: "zone", icon: "clock", note: "", act: nextZone },
      name: isUtc.value ? "Show times in this browser's zone" : "Show times in UTC",
    },
    { key: "help", icon: "alert", name: "Show the keys", note: "?", act: onHelp },
    ...(viewer.value?.kind === "dev"
      ? []
      : [
          {
            key: "out",
            icon: "out" as const,
            name: "Sign out",
            act: () => void attempt(signOut, "Signed out"),
          },
        ]),
  ];
}

/** Attributes whose runs are looked for by a value alone. */
const namesAsked = 5;

/** By their ids and names, by a condition such as `orderId=L22`, and by the value of a text attribute. */
async function searchRuns(text: string, signal: AbortSignal): Promise<RunView[]> {
  const find = async (filters: RunFilters) => (await listRuns(filters, { limit: foundMax }, signal)).runs;
  if (conditionIn(text)) return find({ where: text });
  const names = (await readAttributes()).filter(({ type }) => type === "text").slice(0, namesAsked);
  const found = await Promise.all([
    find({ search: text }),
    ...names.map(({ name }) => find({ attributes: [{ name, op: "eq", text }] })),
  ]);
  return [...new Map(found.flat().map((run) => [run.id, run])).values()].slice(0, foundMax);
}

async function search(text: string, signal: AbortSignal): Promise<PaletteCommand[]> {
  const [functions, runs] = await Promise.all([
    may("functions:list")
      ? rpc("SvcService", "ListFunctions", { name: text, limit: foundMax }, signal)
      : { functions: [] },
    may("runs:read") ? searchRuns(text, signal) : [],
  ]);
  return [
    ...(functions.functions ?? []).map(({ id = "" }) => ({
      ...{ key: `function ${id}`, icon: "functions" as const, name: id, note: "Function" },
      act: () => go(hrefOf(["functions", id])),
    })),
    ...runs.map(({ id, functionId, status }) => ({
      ...{ key: `run ${id}`, icon: "runs" as const, name: id, note: `${functionId}, ${lookOf(status).word}` },
      act: () => go(hrefOf(["runs", id])),
    })),
  ];
}

function useFound(text: string): readonly PaletteCommand[] {
  const [found, setFound] = useState<readonly PaletteCommand[]>([]);
  useEffect(() => {
    if (text.length < 2) return setFound([]);
    const over = new AbortController();
    const timer = setTimeout(() => search(text, over.signal).then(setFound, () => {}), searchPauseMs);
    return () => {
      clearTimeout(timer);
      over.abort();
    };
  }, [text]);
  return found;
}

/** Every page, what the one that is open offers, every recent id, and what the server finds. */
export function Palette({ onClose, onHelp }: { onClose: () => void; onHelp: () => void }) {
  const [typed, setTyped] = useState("");
  const [place, setPlace] = useState(0);
  const listId = useId();
  const text = typed.trim();
  const found = useFound(text);
  const offered = useMemo(actionsOfPage, []);

  const byId = commandOfId(text);
  const recents = recent.value.map(commandOfRecent).filter((one) => one !== undefined);
  const matching = [...fixedCommands(onHelp), ...offered, ...recents].filter(({ name }) =>
    name.toLowerCase().includes(text.toLowerCase()),
  );
  const all = new Map(
    [...(byId ? [byId] : []), ...matching, ...found].map((one) => [one.name + one.icon, one]),
  );
  const commands = [...all.values()];
  const chosen = Math.min(place, commands.length - 1);
  const run = (command: PaletteCommand | undefined) => {
    if (!command) return;
    onClose();
    command.act();
  };
  const press = (event: KeyboardEvent) => {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (by !== undefined) {
      event.preventDefault();
      setPlace((chosen + by + commands.length) % Math.max(1, commands.length));
    } else if (event.key === "Enter") {
      event.preventDefault();
      run(commands[chosen]);
    }
  };
  return (
    <Dialog title="Search" kind="palette" onClose={onClose}>
      <input
        type="text"
        role="combobox"
        aria-expanded="true"
        aria-controls={listId}
        aria-activedescendant={commands[chosen] ? `${listId}-${chosen}` : undefined}
        aria-label="Search for a page, an id, a function or an action"
        placeholder="A page, an id, a function…"
        value={typed}
        spellcheck={false}
        autocomplete="off"
        onInput={({ currentTarget: { value } }) => {
          setTyped(value);
          setPlace(0);
        }}
        onKeyDown={press}
      />
      <div id={listId} class="commands" role="listbox" aria-label="Found">
        {commands.map((command, index) => (
          // biome-ignore lint/a11y/useKeyWithClickEvents: keys go to the field
          // biome-ignore lint/a11y/useFocusableInteractive: the field keeps the focus
          <div
            key={command.key}
            id={`${listId}-${index}`}
            class="command"
            role="option"
            aria-selected={index === chosen}
            onClick={() => run(command)}
            onMouseMove={() => setPlace(index)}
          >
            <Icon name={command.icon} />
            <Text of={command.name} in="span" class="command-name" />
            {command.note && <Text of={command.note} in="span" class="command-note" />}
          </div>
        ))}
        {commands.length === 0 && <p class="faint">Nothing found.</p>}
      </div>
    </Dialog>
  );
}
