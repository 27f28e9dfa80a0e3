package config

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/proto"

	configv1 "github.com/sidehook/sidehook/pb/sidehook/config/v1"
)

// Change is one field that differs between two configurations, defaults counted.
type Change struct {
	// Path is the field; sources and endpoints go by their names: extauthz.sources[payments].tolerance. In a reload also
	// the path of a secret's file, without values.
	Path string
	// Before and After are the values as they are written; empty where there is none. They hold no secrets, but URLs as a
	// whole: see IsURL.
	Before, After string
	// NeedsRestart: the process reads it at start only; a reload keeps the old one.
	NeedsRestart bool
	// Effect says what the change does that its path does not tell; it may be empty.
	Effect string
}

// String returns the change as one line of a list.
func (c Change) String() string {
	var b strings.Builder
	switch {
	case c.Before == "" && c.After == "":
		return c.Path + ": " + c.Effect
	case c.Before == "":
		fmt.Fprintf(&b, "%s: added: %s", c.Path, c.After)
	case c.After == "":
		fmt.Fprintf(&b, "%s: removed: %s", c.Path, c.Before)
	default:
		fmt.Fprintf(&b, "%s: %s -> %s", c.Path, c.Before, c.After)
	}
	if c.NeedsRestart {
		b.WriteString(" (needs restart)")
	}
	if c.Effect != "" {
		b.WriteString("; " + c.Effect)
	}
	return b.String()
}

// IsURL reports whether the values are URLs of receivers, whose path and query may let whoever knows them in: a log
// shows less of them.
func (c Change) IsURL() bool {
	_, field := splitEndpoint(c.Path)
	return field == "url" || c.Path == "notify.webhook.url"
}

// atStart are the fields that the process reads at start only.
var atStart = []string{
	"store", "limits", "extauthz.listen", "egress.listen", "admin.listen", "health.listen", "log.format",
}

// Diff returns what differs between two configurations, in the order of the new file and then what is gone.
// Contents of secret files are not compared, only where secrets come from.
func Diff(old, new *Config) []Change {
	before, after := flatten(old.Message), flatten(new.Message)
	var changes []Change
	for _, f := range after {
		if i := slices.IndexFunc(before, f.same); i < 0 || before[i].value != f.value {
			c := Change{Path: f.path, After: f.value}
			if i >= 0 {
				c.Before = before[i].value
			}
			changes = append(changes, c)
		}
	}
	for _, f := range before {
		if !slices.ContainsFunc(after, f.same) {
			changes = append(changes, Change{Path: f.path, Before: f.value})
		}
	}
	for i := range changes {
		c := &changes[i]
		c.NeedsRestart = slices.ContainsFunc(atStart, func(p string) bool { return within(c.Path, p) })
		c.Effect = effect(c, old, new)
	}
	return changes
}

// effect says what a user should know before making the change.
func effect(c *Change, old, new *Config) string {
	if id, field := splitEndpoint(c.Path); id != "" {
		return endpointEffect(id, field, old, new)
	}
	name, field := splitSource(c.Path)
	if name == "" || old.source(name) == nil && new.source(name) == nil {
		return ""
	}
	heir := ""
	for _, s := range new.Message.GetExtauthz().GetSources() {
		if slices.Contains(s.GetWas(), name) {
			heir = s.GetName()
		}
	}
	switch {
	case field == "types[0]" && c.Before == "" && old.source(name) != nil:
		return "events of other types no longer reach the app"
	case field == "mode" && c.Before == "STORE" && c.After == "PASS":
		return "what is stored and not delivered yet waits as orphaned: let it be delivered first, or discard it"
	case field == "mode" && c.Before == "PASS" && c.After == "STORE":
		return "senders are answered by sidehook, and the app gets the events from it; claims that are open end as they were made"
	case old.source(name) != nil && new.source(name) != nil && readingEffect(c, field) != "":
		return readingEffect(c, field)
	case field != "name":
		return ""
	case old.source(name) == nil:
		return "a new source"
	case heir != "":
		return fmt.Sprintf("its claims count for %s", heir)
	default:
		return fmt.Sprintf("a removed source: its events are kept as orphaned; to rename it, write was: [%s] at the new one", name)
	}
}

// readingEffect is effect for what a source reads of an event beside its id and type.
func readingEffect(c *Change, field string) string {
	on := c.After != "" && c.After != "false"
	switch {
	case field == "version.object" && c.Before == "":
		return "events older than what the app has of their object no longer reach it"
	case strings.HasPrefix(field, "version.") && c.Before != "" && c.After != "":
		return "what the app has of an object is learned anew: until then older events pass"
	case field == "live_only" && on:
		return "events of the sender's test mode no longer reach the app"
	case field == "dedupe.also.object" && c.Before == "":
		return "a second event for one change no longer reaches the app"
	case field == "split" && on:
		return "each event of a request reaches the app by itself, with the sender's signature over the whole request"
	case field == "split":
		return "the app gets requests with several events"
	}
	return ""
}

// endpointEffect is effect for a field of an endpoint.
func endpointEffect(id, field string, old, new *Config) string {
	before, after := old.endpoint(id), new.endpoint(id)
	switch {
	case before == nil && field == "id":
		return "a new endpoint"
	case after == nil && field == "id":
		return "a removed endpoint: its deliveries are cancelled, and kept as such; a new one of this id does not send them"
	case before != nil && after != nil && field == "url":
		return "holds from the next attempt, also for what is queued"
	case before != nil && after != nil && field == "tenant":
		return "holds for new events; what is queued goes to the endpoint all the same"
	}
	return ""
}

// splitEndpoint takes egress.endpoints[ID].FIELD apart; "" if path is not that.
func splitEndpoint(path string) (id, field string) { return splitItem(path, "egress.endpoints[") }

func (c *Config) endpoint(id string) *configv1.Endpoint {
	for _, e := range c.Message.GetEgress().GetEndpoints() {
		if e.GetId() == id {
			return e
		}
	}
	return nil
}

// splitSource takes extauthz.sources[NAME].FIELD apart; "" if path is not that.
func splitSource(path string) (name, field string) { return splitItem(path, "extauthz.sources[") }

// splitItem takes a path apart that begins with list and the name of an item.
func splitItem(path, list string) (name, field string) {
	rest, ok := strings.CutPrefix(path, list)
	if !ok {
		return "", ""
	}
	name, field, _ = strings.Cut(rest, "].")
	return name, field
}

func (c *Config) source(name string) *configv1.Source {
	for _, s := range c.Message.GetExtauthz().GetSources() {
		if s.GetName() == name {
			return s
		}
	}
	return nil
}

// leaf is one value of a configuration and its path.
type leaf struct{ path, value string }

func (l leaf) same(o leaf) bool { return l.path == o.path }

// flatten returns the values of m in order.
func flatten(m *configv1.Config) []leaf {
	var leaves []leaf
	var walk func(n *yaml.Node, path string)
	walk = func(n *yaml.Node, path string) {
		switch n.Kind {
		case yaml.MappingNode:
			for i := 0; i+1 < len(n.Content); i += 2 {
				walk(n.Content[i+1], join(path, n.Content[i].Value))
			}
		case yaml.SequenceNode:
			for i, item := range n.Content {
				name := fmt.Sprint(i)
				if path == "extauthz.sources" || path == "egress.endpoints" {
					name = item.Content[1].Value // the name is the first field, and required
				}
				walk(item, fmt.Sprintf("%s[%s]", path, name))
			}
		default:
			leaves = append(leaves, leaf{path, n.Value})
		}
	}
	walk(render(m.ProtoReflect()), "")
	return leaves
}

// keepStarted returns new with what is read at start taken from running, so that what it says is what is so.
func keepStarted(running, new *Config) *Config {
	kept := *new
	kept.Message = proto.CloneOf(new.Message)
	kept.Store, kept.Limits, kept.Log.Text = running.Store, running.Limits, running.Log.Text
	kept.Admin.Listen, kept.Health.Listen = running.Admin.Listen, running.Health.Listen
	m, r := kept.Message, running.Message
	m.Store, m.Limits, m.Log.Format = r.GetStore(), r.GetLimits(), r.GetLog().GetFormat()
	m.Admin.Listen, m.Health.Listen = r.GetAdmin().GetListen(), r.GetHealth().GetListen()
	switch {
	case running.Gate == nil || new.Gate == nil:
		// A gate comes and goes with its listener.
		kept.Gate, m.Extauthz = running.Gate, r.GetExtauthz()
	default:
		gate := *new.Gate
		gate.Listen = running.Gate.Listen
		kept.Gate, m.Extauthz.Listen = &gate, gate.Listen
	}
	switch {
	case running.Egress == nil || new.Egress == nil:
		// So does the intake.
		kept.Egress, m.Egress = running.Egress, r.GetEgress()
		kept.Notify, m.Notify = running.Notify, r.GetNotify()
	default:
		outbound := *new.Egress
		outbound.Listen = running.Egress.Listen
		kept.Egress, m.Egress.Listen = &outbound, outbound.Listen
	}
	return &kept
}
