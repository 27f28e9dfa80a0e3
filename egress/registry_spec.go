package egress

import (
	"errors"
	"fmt"
	"net/http"
	"net/mail"
	"regexp"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sidehook/sidehook/egress/netguard"
	egressv1 "github.com/sidehook/sidehook/pb/sidehook/egress/v1"
)

// Bounds of what the API takes; they are those of the configuration, and stand in the comments of the messages.
const (
	maxEventTypes       = 256
	maxEndpointHeaders  = 32
	maxSpecBytes        = 32 << 10 // a request of the admin API has room for it, in JSON too
	maxHeaderNameBytes  = 128
	maxHeaderValueBytes = 4096
	maxURLBytes         = 2048
	maxOwnerBytes       = 254
	maxWaits            = 100
	maxStopOn           = 64
	maxEndpointInFlight = 512
	maxEndpointRate     = 1_000_000
	maxScheduleAttempts = 100
	minWait             = 100 * time.Millisecond
	maxBase             = time.Hour
	maxTimeout          = 5 * time.Minute
	minDisableAfter     = time.Hour
	maxDisableAfter     = 90 * 24 * time.Hour
)

// The exponential schedule of which nothing is said.
const (
	defaultBase     = 5 * time.Second
	defaultFactor   = 2
	defaultCap      = 24 * time.Hour
	defaultAttempts = 16
)

var (
	endpointIDForm = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	tenantForm     = regexp.MustCompile(`^[A-Za-z0-9._-]{0,128}$`)
)

func validEndpointID(id string) bool { return endpointIDForm.MatchString(id) }

// checkSpec returns ErrSpec with all that is wrong with spec as a description of an endpoint.
func checkSpec(spec *egressv1.EndpointSpec, f *netguard.Filter) error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if n := proto.Size(spec); n > maxSpecBytes {
		bad("spec: %d bytes in all, %d are the most", n, maxSpecBytes)
	}
	switch url := spec.GetUrl(); {
	case url == "":
		bad("url: required")
	case len(url) > maxURLBytes:
		bad("url: %d bytes, %d are the most", len(url), maxURLBytes)
	default:
		if _, err := f.Check(url); err != nil {
			bad("url: %w", err)
		}
	}
	if !tenantForm.MatchString(spec.GetTenant()) {
		bad("tenant: want up to 128 of A-Z, a-z, 0-9, full stop, _ and -")
	}
	if n := len(spec.GetEventTypes()); n > maxEventTypes {
		bad("event_types: %d, %d are the most", n, maxEventTypes)
	}
	for i, p := range spec.GetEventTypes() {
		if !validEventTypes(p) {
			bad("event_types[%d]: want a type such as invoice.paid, invoice.* for all that begin so, or * for all", i)
		}
	}
	checkHeaders(spec.GetHeaders(), bad)
	if owner := spec.GetOwner(); owner != "" {
		if a, err := mail.ParseAddress(owner); err != nil || a.Address != owner || len(owner) > maxOwnerBytes {
			bad("owner: want a mail address alone, such as ops@example.com")
		}
	}
	if _, err := readPolicy(spec.GetPolicy(), Policy{}); err != nil {
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("%w: %w", ErrSpec, err)
	}
	return nil
}

// validEventTypes reports whether p can stand in Endpoint.EventTypes.
func validEventTypes(p string) bool {
	if p == "*" {
		return true
	}
	base := strings.TrimSuffix(p, ".*")
	if base == "" || len(p) > maxEventTypeBytes || strings.HasSuffix(base, ".") && base != p {
		return false
	}
	return strings.IndexFunc(base, func(r rune) bool { return r <= ' ' || r > '~' || r == '*' || r == ',' }) < 0
}

// checkHeaders never repeats a value: it may be a secret.
func checkHeaders(headers []*egressv1.Header, bad func(format string, args ...any)) {
	if n := len(headers); n > maxEndpointHeaders {
		bad("headers: %d, %d are the most", n, maxEndpointHeaders)
	}
	seen := make(map[string]bool)
	for i, h := range headers {
		name := strings.ToLower(h.GetName())
		switch {
		case len(name) > maxHeaderNameBytes:
			bad("headers[%d].name: %d bytes, %d are the most", i, len(name), maxHeaderNameBytes)
		case len(h.GetValue()) > maxHeaderValueBytes:
			bad("headers[%d].value: %d bytes, %d are the most", i, len(h.GetValue()), maxHeaderValueBytes)
		case seen[name]:
			bad("headers[%d].name: %q comes twice", i, h.GetName())
		default:
			if err := ForbiddenHeader(h.GetName(), h.GetValue()); err != nil {
				bad("headers[%d]: %w", i, err)
			}
		}
		seen[name] = true
	}
}

// policyFrom returns what p says, and d where it says nothing, or ErrSpec with the fields that break the rules.
func policyFrom(p *egressv1.DeliveryPolicy, d Policy) (Policy, error) {
	d, err := readPolicy(p, d)
	if err != nil {
		return Policy{}, fmt.Errorf("%w: %w", ErrSpec, err)
	}
	return d, nil
}

// readPolicy is policyFrom with the fields alone.
func readPolicy(p *egressv1.DeliveryPolicy, d Policy) (Policy, error) {
	if p == nil {
		return d, nil
	}
	var r policyReader
	if p.Timeout != nil {
		d.Timeout = r.duration("timeout", p.GetTimeout(), minWait, maxTimeout)
	}
	d.Schedule = r.schedule(p, d.Schedule)
	if p.RespectRetryAfter != nil {
		d.RespectRetryAfter = p.GetRespectRetryAfter()
	}
	switch p.GetOnGone() {
	case egressv1.OnGone_ON_GONE_UNSPECIFIED:
	case egressv1.OnGone_ON_GONE_DISABLE:
		d.OnGone = GoneDisables
	case egressv1.OnGone_ON_GONE_RETRY:
		d.OnGone = GoneRetries
	default:
		r.bad("on_gone: %d is none of its values", p.GetOnGone())
	}
	if codes := p.GetStopOn(); len(codes) > maxStopOn {
		r.bad("stop_on: %d, %d are the most", len(codes), maxStopOn)
	} else if len(codes) > 0 {
		d.StopOn = r.stopOn(codes)
	}
	if n := p.GetMaxInFlight(); n != 0 {
		if n < 1 || n > maxEndpointInFlight {
			r.bad("max_in_flight: %d is not within 1 to %d", n, maxEndpointInFlight)
		}
		d.MaxInFlight = int(n)
	}
	if p.Rate != nil {
		d.Rate = r.number("rate", p.GetRate(), 0, maxEndpointRate)
	}
	if after := p.GetDisableAfter(); after != nil {
		d.DisableAfter = 0
		if after.GetSeconds() != 0 || after.GetNanos() != 0 {
			d.DisableAfter = r.duration("disable_after", after, minDisableAfter, maxDisableAfter)
		}
	}
	return d, errors.Join(r.errs...)
}

// policyReader notes what breaks the rules.
type policyReader struct{ errs []error }

func (r *policyReader) bad(format string, args ...any) {
	r.errs = append(r.errs, fmt.Errorf("policy."+format, args...))
}

func (r *policyReader) duration(field string, v *durationpb.Duration, least, most time.Duration) time.Duration {
	d := v.AsDuration()
	if err := v.CheckValid(); err != nil {
		r.bad("%s: %w", field, err)
	} else if d < least || d > most {
		r.bad("%s: %s is not within %s to %s", field, d, least, most)
	}
	return d
}

// number refuses NaN too, which is within nothing.
func (r *policyReader) number(field string, v, least, most float64) float64 {
	if !(v >= least && v <= most) {
		r.bad("%s: %v is not within %s to %s", field, v,
			strconv.FormatFloat(least, 'f', -1, 64), strconv.FormatFloat(most, 'f', -1, 64))
	}
	return v
}

func (r *policyReader) stopOn(codes []int32) []int {
	out := make([]int, len(codes))
	for i, code := range codes {
		if code < 300 || code > 599 || code == http.StatusGone {
			r.bad("stop_on[%d]: want 300 to 599, but for 410, which is on_gone's", i)
		}
		out[i] = int(code)
	}
	return out
}

func (r *policyReader) schedule(p *egressv1.DeliveryPolicy, d Schedule) Schedule {
	if e := p.GetExponential(); e != nil {
		if len(p.GetWaits()) > 0 || p.JitterPercent != nil {
			r.bad("exponential: excludes waits and jitter_percent")
		}
		x := &Exponential{Base: defaultBase, Cap: defaultCap, Factor: defaultFactor, Attempts: defaultAttempts}
		if e.Base != nil {
			x.Base = r.duration("exponential.base", e.GetBase(), minWait, maxBase)
		}
		if e.Cap != nil {
			x.Cap = r.duration("exponential.cap", e.GetCap(), x.Base, MaxWait)
		}
		if e.GetFactor() != 0 {
			x.Factor = r.number("exponential.factor", e.GetFactor(), 1, 10)
		}
		if n := e.GetAttempts(); n != 0 {
			x.Attempts = int(r.number("exponential.attempts", float64(n), 1, maxScheduleAttempts))
		}
		return Schedule{Exponential: x}
	}
	if n := len(p.GetWaits()); n > maxWaits {
		r.bad("waits: %d, %d are the most", n, maxWaits)
	} else if n > 0 {
		jitter := d.JitterPercent
		if d.Exponential != nil {
			jitter = DefaultJitterPercent
		}
		d = Schedule{JitterPercent: jitter}
		for i, w := range p.GetWaits() {
			d.Waits = append(d.Waits, r.duration(fmt.Sprintf("waits[%d]", i), w, minWait, MaxWait))
		}
	}
	if p.JitterPercent != nil { // an exponential schedule of the configuration has no use for it
		d.JitterPercent = int(r.number("jitter_percent", float64(p.GetJitterPercent()), 0, 100))
	}
	return d
}

// applyMask returns into with the fields that paths name as from has them. ErrSpec.
func applyMask(into, from *egressv1.EndpointSpec, paths []string) (*egressv1.EndpointSpec, error) {
	if len(paths) == 0 {
		return nil, fmt.Errorf("%w: update_mask: names no field", ErrSpec)
	}
	into = proto.CloneOf(into)
	for _, path := range paths {
		field, rest, nested := strings.Cut(path, ".")
		switch {
		case path == "url":
			into.Url = from.GetUrl()
		case path == "event_types":
			into.EventTypes = from.GetEventTypes()
		case path == "headers":
			into.Headers = proto.CloneOf(from).GetHeaders()
		case path == "owner":
			into.Owner = from.GetOwner()
		case path == "policy":
			into.Policy = proto.CloneOf(from.GetPolicy())
		case field == "policy" && nested && applyPolicyField(&into.Policy, from.GetPolicy(), rest):
		case path == "tenant":
			return nil, fmt.Errorf("%w: tenant: cannot be changed, for what waits belongs to the one before: add another endpoint", ErrSpec)
		default:
			return nil, fmt.Errorf("%w: update_mask: %q is not a field that can be changed", ErrSpec, path)
		}
	}
	return into, nil
}

// applyPolicyField copies one field by its name in the schema. A list of waits and an exponential schedule stand in the
// place of each other.
func applyPolicyField(into **egressv1.DeliveryPolicy, from *egressv1.DeliveryPolicy, name string) bool {
	fields := (*egressv1.DeliveryPolicy)(nil).ProtoReflect().Descriptor().Fields()
	set := func(name string, from *egressv1.DeliveryPolicy) bool {
		f := fields.ByTextName(name)
		if f == nil {
			return false
		}
		if from.ProtoReflect().Has(f) {
			(*into).ProtoReflect().Set(f, from.ProtoReflect().Get(f))
		} else {
			(*into).ProtoReflect().Clear(f)
		}
		return true
	}
	if *into == nil {
		*into = &egressv1.DeliveryPolicy{}
	}
	switch name {
	case "waits":
		set("exponential", nil)
	case "exponential":
		set("waits", nil)
		set("jitter_percent", nil)
	}
	return set(name, from)
}
