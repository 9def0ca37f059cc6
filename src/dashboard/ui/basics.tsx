import { type ComponentChildren, h } from "preact";
import { isMissing, messageOf } from "../lib/api.ts";
import { ago, dateTime, instantOf, plain } from "../lib/format.ts";
import { useTick } from "../lib/hooks.ts";
import { address, hrefOf, setQuery } from "../lib/router.ts";
import { copy } from "../lib/toasts.ts";
import { Icon, type IconName } from "./icons.tsx";

/** Text of a tenant: isolated, so that its direction stays its own. A link by `href`, or `in` an element. */
export function Text(props: {
  of: string | undefined;
  href?: string | undefined;
  in?: "code" | "p" | "span" | "strong";
  class?: string;
}) {
  const { of = "", href, in: Outer = href === undefined ? undefined : "a", class: className } = props;
  const text = <bdi>{plain(of)}</bdi>;
  return Outer ? h(Outer, { class: className, href }, text) : text;
}

export function Button(props: {
  /** What stands on it, as an attribute or between its tags. */
  text?: string;
  children?: ComponentChildren;
  icon?: IconName | undefined;
  kind?: "plain" | "primary" | "danger" | "quiet";
  label?: string;
  isDisabled?: boolean;
  isPressed?: boolean;
  type?: "button" | "submit";
  onClick?: () => void;
}) {
  const { text, icon, kind = "plain", label, isDisabled, isPressed, type = "button", onClick } = props;
  const { children = text } = props;
  return (
    <button
      type={type}
      class={`button ${kind} ${children ? "" : "bare"}`}
      disabled={isDisabled}
      aria-label={label}
      title={children ? undefined : label}
      aria-pressed={isPressed}
      onClick={onClick}
    >
      {icon && <Icon name={icon} />}
      {children}
    </button>
  );
}

/** An id in full or with its middle cut, with a button that copies it. */
export function Id({ of, what = "Id" }: { of: string; what?: string }) {
  return (
    <span class="id">
      <code title={plain(of)}>{plain(of)}</code>
      <Button kind="quiet" icon="copy" label={`Copy ${what}`} onClick={() => void copy(of, what)} />
    </span>
  );
}

/** How long ago, with the exact time under the pointer. A text is an instant as the server writes it. */
export function When(props: { at: number | string | undefined }) {
  const at = typeof props.at === "string" ? instantOf(props.at) : props.at;
  const now = useTick(10_000, at !== undefined);
  if (at === undefined) return <span class="faint">–</span>;
  return (
    <time dateTime={new Date(at).toISOString()} title={dateTime(at)}>
      {ago(at, now)}
    </time>
  );
}

/** In place of what is not there. `docs`: the page of the documentation about it. */
export function Empty(props: {
  title: string;
  says?: string | undefined;
  docs?: string | undefined;
  children?: ComponentChildren;
}) {
  const { title, says, docs, children } = props;
  return (
    <div class="empty">
      <p class="empty-title">{title}</p>
      {says && <p>{says}</p>}
      {children}
      {docs && (
        <p>
          <a href={`/docs/${docs}`}>How it works</a>
        </p>
      )}
    </div>
  );
}

/** In place of a whole page, as its heading: what was asked for is not here. */
export function Missing({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="page">
      <div class="empty">
        <h1 class="empty-title">{title}</h1>
        {children}
      </div>
    </div>
  );
}

export function Failure({ error, onRetry }: { error: unknown; onRetry?: () => void }) {
  return (
    <div class="failure" role="alert">
      <Icon name="alert" />
      <p>
        <Text of={messageOf(error)} />
      </p>
      {onRetry && <Button onClick={onRetry}>Try again</Button>}
    </div>
  );
}

/** Why what was sent is not done; nothing while there is no reason. */
export const FormError = ({ of }: { of: string | undefined }) =>
  of ? (
    <p class="form-error" role="alert">
      <Text of={of} />
    </p>
  ) : null;

export function Section(props: { title: string; aside?: ComponentChildren; children?: ComponentChildren }) {
  return (
    <section class="section">
      <header class="section-head">
        <h2>{props.title}</h2>
        {props.aside && <div class="section-aside">{props.aside}</div>}
      </header>
      {props.children}
    </section>
  );
}

/** What the head of a page says of what it reads; of what could not be read, the page says why below. */
export function aboutRead<Value>(
  { value, error }: { value: Value | undefined; error: unknown },
  said: (value: Value) => string,
): string {
  if (value !== undefined) return said(value);
  return error === undefined ? "Reading…" : "";
}

export interface PageHeadProps {
  title: ComponentChildren;
  about?: ComponentChildren;
  actions?: ComponentChildren;
}

/** The head of a page: what it shows, and what can be done. */
export function PageHead(props: PageHeadProps) {
  return (
    <header class="page-head">
      <div class="page-title">
        <h1>{props.title}</h1>
        {props.about && <div class="page-about">{props.about}</div>}
      </div>
      {props.actions && <div class="page-actions">{props.actions}</div>}
    </header>
  );
}

/** A page: its head, and what it shows. */
export const Page = ({ children, ...head }: PageHeadProps & { children?: ComponentChildren }) => (
  <div class="page">
    <PageHead {...head} />
    {children}
  </div>
);

/** One number that matters, and where it leads. */
interface TileProps {
  name: string;
  value: string;
  note?: string;
  href?: string;
  /** What the link lists, where it is not what the value counts. */
  title?: string;
  tone?: string;
}

export function Tile(props: TileProps) {
  const content = (
    <>
      <span class="tile-name">{props.name}</span>
      <span class={`tile-value number ${props.tone ?? ""}`}>{props.value}</span>
      <span class="tile-note">{props.note ?? ""}</span>
    </>
  );
  return props.href ? (
    <a class="tile" href={props.href} title={props.title}>
      {content}
    </a>
  ) : (
    <div class="tile">{content}</div>
  );
}

type Fact = readonly [name: string, value: ComponentChildren];

/** Facts as pairs of name and value; what is no pair is left out. */
export const Facts = ({ of }: { of: readonly (Fact | false | 0 | "" | undefined)[] }) => (
  <dl class="facts">
    {of.map((fact) =>
      fact ? (
        <div key={fact[0]}>
          <dt>{fact[0]}</dt>
          <dd>{fact[1]}</dd>
        </div>
      ) : null,
    )}
  </dl>
);

/** A filter that stands in the address. */
export function SearchFilter(props: {
  label: string;
  placeholder: string;
  name?: string;
  /** Filters beside it. */
  children?: ComponentChildren;
}) {
  const { label, placeholder, name = "q", children } = props;
  return (
    <search class="filters filter-row">
      <span class="filter-search">
        <Icon name="search" />
        <input
          type="search"
          aria-label={label}
          placeholder={placeholder}
          value={address.value.query.get(name) ?? ""}
          onInput={({ currentTarget: { value } }) => setQuery({ [name]: value })}
        />
      </span>
      {children}
    </search>
  );
}

/** Tabs whose choice stands in the address; each is a link. */
export function Tabs(props: {
  label: string;
  tabs: readonly { name: string; href: string; isShown: boolean; count?: number | undefined }[];
}) {
  return (
    <nav class="tabs" aria-label={props.label}>
      {props.tabs.map(({ name, href, isShown, count }) => (
        <a key={name} href={href} aria-current={isShown ? "page" : undefined}>
          {name}
          {count !== undefined && <span class="count">{count}</span>}
        </a>
      ))}
    </nav>
  );
}

/** In place of a page whose one thing is not there: it is being read, it cannot be read, or there is none. */
export function Unread(props: {
  error: unknown;
  onRetry: () => void;
  /** What the page shows one of, and the path of the list of all. */
  one: string;
  all: string;
  /** What those are called, where the path does not say it. */
  allName?: string;
}) {
  const { error, onRetry, one, all, allName = all } = props;
  if (error === undefined) return <p class="page faint">Reading…</p>;
  if (!isMissing(error))
    return (
      <div class="page">
        <Failure error={error} onRetry={onRetry} />
      </div>
    );
  return (
    <Missing title={`There is no such ${one} here`}>
      <a href={hrefOf([all])}>{`All ${allName}`}</a>
    </Missing>
  );
}
