// Renders a chart as Helm does: its templates are Go's text/template with the functions of sprig, and Helm's own few.
// Helm itself is neither in npm nor in Debian. Reads requests from the input, writes what became of each to the output, as JSON.
package main

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"text/template"

	"github.com/Masterminds/semver"
	"github.com/Masterminds/sprig"
	"github.com/xeipuuv/gojsonschema"
	"sigs.k8s.io/yaml"
)

type values = map[string]interface{}

type release struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	// Files of values, the later ones before the earlier ones, and values before them all.
	Files  []string `json:"files"`
	Values values   `json:"values"`
}

type rendered struct {
	// By the file of the template.
	Documents map[string]string `json:"documents,omitempty"`
	Error     string            `json:"error,omitempty"`
}

type chart struct {
	folder    string
	about     values
	values    values
	schema    []byte
	templates map[string]string
	files     files
}

// The files of a chart that are no templates, as `.Files` offers them.
type files map[string][]byte

func (f files) Get(name string) string      { return string(f[name]) }
func (f files) GetBytes(name string) []byte { return f[name] }
func (f files) Glob(pattern string) files {
	found := files{}
	for name, bytes := range f {
		if ok, _ := filepath.Match(pattern, name); ok {
			found[name] = bytes
		}
	}
	return found
}

type versions []string

func (v versions) Has(name string) bool {
	for _, one := range v {
		if one == name {
			return true
		}
	}
	return false
}

func main() {
	folder := os.Args[1]
	loaded, err := load(folder)
	if err != nil {
		fail(err)
	}
	var asked []release
	if err := json.NewDecoder(os.Stdin).Decode(&asked); err != nil {
		fail(err)
	}
	answers := []rendered{}
	for _, one := range asked {
		documents, err := loaded.render(one)
		if err != nil {
			answers = append(answers, rendered{Error: err.Error()})
		} else {
			answers = append(answers, rendered{Documents: documents})
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(answers); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func load(folder string) (*chart, error) {
	c := &chart{folder: folder, templates: map[string]string{}, files: files{}}
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		// Follows symbolic links, as Helm does.
		bytes, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(folder, path)
		if err != nil {
			return err
		}
		switch {
		case name == "Chart.yaml":
			return yaml.UnmarshalStrict(bytes, &c.about)
		case name == "values.yaml":
			return yaml.UnmarshalStrict(bytes, &c.values)
		case name == "values.schema.json":
			c.schema = bytes
		case strings.HasPrefix(name, "templates/"):
			c.templates[name] = string(bytes)
		default:
			c.files[name] = bytes
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return c, c.lint()
}

// What `helm lint` asks of Chart.yaml.
func (c *chart) lint() error {
	text := func(name string) string { word, _ := c.about[name].(string); return word }
	if text("apiVersion") != "v2" {
		return fmt.Errorf("Chart.yaml: apiVersion must be v2")
	}
	if text("name") != "svc" {
		return fmt.Errorf("Chart.yaml: name must be svc")
	}
	if _, err := semver.StrictNewVersion(text("version")); err != nil {
		return fmt.Errorf("Chart.yaml: version: %w", err)
	}
	if _, err := semver.NewConstraint(text("kubeVersion")); err != nil {
		return fmt.Errorf("Chart.yaml: kubeVersion: %w", err)
	}
	if _, ok := c.about["appVersion"].(string); !ok {
		return fmt.Errorf("Chart.yaml: appVersion must be a text")
	}
	return nil
}

// The values of `over` before those of `under`; null takes one away.
func merged(under, over values) values {
	all := values{}
	for name, value := range under {
		all[name] = value
	}
	for name, value := range over {
		below, isBelow := all[name].(values)
		above, isAbove := value.(values)
		switch {
		case value == nil:
			delete(all, name)
		case isBelow && isAbove:
			all[name] = merged(below, above)
		default:
			all[name] = value
		}
	}
	return all
}

func (c *chart) valuesOf(r release) (values, error) {
	all := c.values
	for _, file := range r.Files {
		bytes, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var own values
		if err := yaml.UnmarshalStrict(bytes, &own); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		all = merged(all, own)
	}
	all = merged(all, r.Values)
	text, err := json.Marshal(all)
	if err != nil {
		return nil, err
	}
	result, err := gojsonschema.Validate(gojsonschema.NewBytesLoader(c.schema), gojsonschema.NewBytesLoader(text))
	if err != nil {
		return nil, err
	}
	if result.Valid() {
		return all, nil
	}
	lines := []string{}
	for _, mistake := range result.Errors() {
		lines = append(lines, "- "+mistake.String())
	}
	sort.Strings(lines)
	return nil, fmt.Errorf("values don't meet the specifications of the schema(s) in the following chart(s):\nsvc:\n%s", strings.Join(lines, "\n"))
}

func (c *chart) render(r release) (map[string]string, error) {
	all, err := c.valuesOf(r)
	if err != nil {
		return nil, err
	}
	about := values{}
	for name, value := range c.about {
		about[strings.ToUpper(name[:1])+name[1:]] = value
	}
	top := values{
		"Values":  all,
		"Chart":   about,
		"Files":   c.files,
		"Release": values{"Name": r.Name, "Namespace": r.Namespace, "Service": "Helm", "IsInstall": true, "IsUpgrade": false, "Revision": 1},
		"Capabilities": values{
			"KubeVersion": values{"Version": "v1.30.0", "Major": "1", "Minor": "30"},
			"APIVersions": versions{"v1", "apps/v1", "policy/v1", "networking.k8s.io/v1"},
		},
	}

	// Helm leaves a missing value out, and prints nothing for it.
	set := template.New("svc").Option("missingkey=zero")
	set.Funcs(functions(set))
	names := []string{}
	for name := range c.templates {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		if _, err := set.New("svc/" + name).Parse(c.templates[name]); err != nil {
			return nil, err
		}
	}
	documents := map[string]string{}
	for _, name := range names {
		if strings.HasPrefix(filepath.Base(name), "_") {
			continue
		}
		top["Template"] = values{"Name": "svc/" + name, "BasePath": "svc/templates"}
		var out strings.Builder
		if err := set.ExecuteTemplate(&out, "svc/"+name, top); err != nil {
			return nil, err
		}
		documents[name] = strings.ReplaceAll(out.String(), "<no value>", "")
	}
	return documents, nil
}

func functions(set *template.Template) template.FuncMap {
	all := sprig.TxtFuncMap()
	// Helm takes these away: a chart must not read the machine that renders it.
	delete(all, "env")
	delete(all, "expandenv")
	all["include"] = func(name string, data interface{}) (string, error) {
		var out strings.Builder
		err := set.ExecuteTemplate(&out, name, data)
		return out.String(), err
	}
	all["tpl"] = func(text string, data interface{}) (string, error) {
		own, err := set.Clone()
		if err != nil {
			return "", err
		}
		if _, err := own.New("tpl").Parse(text); err != nil {
			return "", err
		}
		var out strings.Builder
		err = own.ExecuteTemplate(&out, "tpl", data)
		return out.String(), err
	}
	all["required"] = func(why string, value interface{}) (interface{}, error) {
		if text, ok := value.(string); value == nil || ok && text == "" {
			return value, fmt.Errorf("%s", why)
		}
		return value, nil
	}
	// As without a cluster: `helm template` and `--dry-run`.
	all["lookup"] = func(_, _, _, _ string) values { return values{} }
	all["toYaml"] = func(value interface{}) string {
		text, err := yaml.Marshal(value)
		if err != nil {
			return ""
		}
		return strings.TrimSuffix(string(text), "\n")
	}
	all["fromYaml"] = func(text string) values {
		found := values{}
		if err := yaml.Unmarshal([]byte(text), &found); err != nil {
			found["Error"] = err.Error()
		}
		return found
	}
	all["fromYamlArray"] = func(text string) []interface{} {
		found := []interface{}{}
		if err := yaml.Unmarshal([]byte(text), &found); err != nil {
			return []interface{}{err.Error()}
		}
		return found
	}
	all["fromJson"] = func(text string) values {
		found := values{}
		if err := json.Unmarshal([]byte(text), &found); err != nil {
			found["Error"] = err.Error()
		}
		return found
	}
	return all
}
