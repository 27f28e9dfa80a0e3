package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	egressv1 "github.com/sidehook/sidehook/pb/sidehook/egress/v1"
)

// maxHeadersFile bounds the file of --headers-file: what the API takes is less.
const maxHeadersFile = 256 << 10

// specFlags describe an endpoint.
type specFlags struct {
	url         string
	eventTypes  []string
	headers     []string
	headersFile string
	owner       string
	timeout     string
	waits       []string
	jitter      int32
	onGone      string
	stopOn      []int32
	maxInFlight int32
	rate        float64
	after       string
}

// register adds the flags to c.
func (s *specFlags) register(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&s.url, "url", "", "the endpoint's `URL`")
	f.StringArrayVar(&s.eventTypes, "event-type", nil, "send it events of this `TYPE`: exact, invoice.* for all that begin so, or * for all; may be given again (default all)")
	f.StringArrayVar(&s.headers, "header", nil, "a header `'Name: value'` to send with each attempt, which other users of this machine may see: rather use --headers-file; may be given again")
	f.StringVar(&s.headersFile, "headers-file", "", "headers from `FILE`, or - for stdin: one Name: value a line")
	f.StringVar(&s.owner, "owner", "", "the mail `ADDRESS` that is told when it fails or is disabled")
	f.StringVar(&s.timeout, "timeout", "", "limit of one attempt, the whole exchange, as a `DURATION`")
	f.StringSliceVar(&s.waits, "waits", nil, "the `WAITS` between attempts, such as 5s,5m,30m,2h,1d")
	f.Int32Var(&s.jitter, "jitter-percent", 0, "spread each wait over `N` percent below and above it")
	f.StringVar(&s.onGone, "on-gone", "", "what 410 does: `DISABLE|RETRY`")
	f.Int32SliceVar(&s.stopOn, "stop-on", nil, "status `CODES` after which a delivery is dead at once, such as 400,422")
	f.Int32Var(&s.maxInFlight, "max-in-flight", 0, "at most `N` attempts at one time")
	f.Float64Var(&s.rate, "rate", 0, "at most `N` attempts per second")
	f.StringVar(&s.after, "disable-after", "", "disable it after failing on end for this `DURATION`, such as 5d; 0s: never")
}

// specFields says which field of the API each flag sets.
var specFields = map[string]string{
	"url": "url", "event-type": "event_types", "header": "headers", "headers-file": "headers", "owner": "owner",
	"timeout": "policy.timeout", "waits": "policy.waits", "jitter-percent": "policy.jitter_percent", "on-gone": "policy.on_gone",
	"stop-on": "policy.stop_on", "max-in-flight": "policy.max_in_flight", "rate": "policy.rate",
	"disable-after": "policy.disable_after",
}

// spec reads the flags that were given, and names the fields that they set, in order.
func (s *specFlags) spec(c *cobra.Command, std stdio) (*egressv1.EndpointSpec, []string, error) {
	var fields []string
	given := func(flag string) bool {
		if !c.Flags().Changed(flag) {
			return false
		}
		fields = append(fields, specFields[flag])
		return true
	}
	var err error
	duration := func(flag, value string) (d *durationpb.Duration) {
		if given(flag) && err == nil {
			var v time.Duration
			if v, err = dayDuration(value); err != nil {
				err = usagef("--%s: %w", flag, err)
			}
			d = durationpb.New(v)
		}
		return d
	}
	given("url")
	given("event-type")
	given("owner")
	spec := &egressv1.EndpointSpec{Url: s.url, EventTypes: s.eventTypes, Owner: s.owner}
	p := &egressv1.DeliveryPolicy{Timeout: duration("timeout", s.timeout), DisableAfter: duration("disable-after", s.after)}
	for _, w := range s.waits {
		p.Waits = append(p.Waits, duration("waits", w))
	}
	if given("jitter-percent") {
		p.JitterPercent = new(s.jitter)
	}
	if given("on-gone") {
		n, ok := egressv1.OnGone_value["ON_GONE_"+strings.ToUpper(s.onGone)]
		if !ok || n == 0 {
			return nil, nil, usagef("--on-gone: %q is neither DISABLE nor RETRY", s.onGone)
		}
		p.OnGone = egressv1.OnGone(n)
	}
	if given("stop-on") {
		p.StopOn = s.stopOn
	}
	if given("max-in-flight") {
		p.MaxInFlight = s.maxInFlight
	}
	if given("rate") {
		p.Rate = new(s.rate)
	}
	if err != nil {
		return nil, nil, err
	}
	if !proto.Equal(p, &egressv1.DeliveryPolicy{}) {
		spec.Policy = p
	}
	if given("header") || given("headers-file") {
		if spec.Headers, err = s.readHeaders(std); err != nil {
			return nil, nil, err
		}
	}
	slices.Sort(fields)
	return spec, slices.Compact(fields), nil
}

// readHeaders reads --header and --headers-file. No error repeats a value.
func (s *specFlags) readHeaders(std stdio) ([]*egressv1.Header, error) {
	lines := s.headers
	if s.headersFile != "" {
		r := std.in
		if s.headersFile != "-" {
			f, err := os.Open(s.headersFile)
			if err != nil {
				return nil, err
			}
			defer f.Close()
			r = f
		}
		b, err := io.ReadAll(io.LimitReader(r, maxHeadersFile+1))
		if err != nil {
			return nil, fmt.Errorf("read headers: %w", err)
		}
		if len(b) > maxHeadersFile {
			return nil, usagef("--headers-file: more than %d bytes", maxHeadersFile)
		}
		for line := range strings.Lines(string(b)) {
			if line = strings.TrimSpace(line); line != "" {
				lines = append(lines, line)
			}
		}
	}
	headers := make([]*egressv1.Header, len(lines))
	for i, line := range lines {
		name, value, ok := strings.Cut(line, ":")
		if !ok {
			return nil, usagef("header %d: want Name: value", i+1)
		}
		headers[i] = &egressv1.Header{Name: strings.TrimSpace(name), Value: strings.TrimSpace(value)}
	}
	return headers, nil
}

// dayDuration reads a duration, also in days: 30d.
func dayDuration(s string) (time.Duration, error) {
	if n, ok := strings.CutSuffix(s, "d"); ok {
		days, err := strconv.Atoi(n)
		if err != nil || days < 0 || days > 3650 {
			return 0, fmt.Errorf("want a number of days before d, such as 30d, not %q", s)
		}
		return time.Duration(days) * 24 * time.Hour, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0, fmt.Errorf("want a duration such as 90s, 24h or 30d, not %q", s)
	}
	return d, nil
}

func newEndpointAdd(std stdio) *cobra.Command {
	var o endpointOptions
	var s specFlags
	var tenant string
	var pair bool
	c := &cobra.Command{
		Use:   "add ID --url URL",
		Short: "Add an endpoint, and print its secret once",
		Long: `Add an endpoint, and print its secret, which is made here and is not shown again: give it to the receiver.

Needs store.seal_key. What is not given is as egress.delivery of the configuration says. Nothing is sent: see
` + "`sidehook endpoint test`" + `. With --ed25519 the receiver gets a public key instead of a shared secret.`,
		Args: args(1, 1),
		RunE: func(c *cobra.Command, a []string) error {
			spec, _, err := s.spec(c, std)
			if err != nil {
				return err
			}
			if spec.GetUrl() == "" {
				return usagef("--url is missing")
			}
			spec.Tenant = tenant
			return endpointAdd(c.Context(), std, o, &egressv1.AddEndpointRequest{Id: a[0], Spec: spec, KeyKind: keyKind(pair)})
		},
	}
	o.register(c)
	s.register(c)
	c.Flags().StringVar(&tenant, "tenant", "", "send it events of this `TENANT` only; cannot be changed later (default: those without a tenant)")
	c.Flags().BoolVar(&pair, "ed25519", false, "make a key pair instead of a shared secret")
	return c
}

// keyKind is the kind of key that --ed25519 asks for; without it the API decides.
func keyKind(pair bool) egressv1.KeyKind {
	if pair {
		return egressv1.KeyKind_KEY_KIND_ED25519
	}
	return egressv1.KeyKind_KEY_KIND_UNSPECIFIED
}

func endpointAdd(ctx context.Context, std stdio, o endpointOptions, req *egressv1.AddEndpointRequest) error {
	client, err := o.admin.connect()
	if err != nil {
		return err
	}
	res, err := call(ctx, client, client.egress.AddEndpoint, req)
	if err != nil {
		return err
	}
	if o.format.structured() {
		return o.format.print(std.out, res)
	}
	return printSecret(std.out, res.GetEndpoint().GetId()+" is added", res.GetSecret())
}

// printSecret prints what was done and a secret that was made.
func printSecret(w io.Writer, done, secret string) error {
	note := "shown once: the receiver verifies with it"
	if strings.HasPrefix(secret, "whpk_") {
		note = "public: the receiver verifies with it"
	}
	_, err := fmt.Fprintf(w, "%s\n%s  (%s)\n", printable(done), printable(secret), note)
	return err
}

func newEndpointUpdate(std stdio) *cobra.Command {
	var o endpointOptions
	var s specFlags
	var reset []string
	c := &cobra.Command{
		Use:   "update ID",
		Short: "Change an endpoint that was added with `endpoint add`",
		Long: `Change what is given of an endpoint that was added through the API, from its next attempt on. --header and --event-type
stand in the place of all that there were. --reset takes a field back to its default.`,
		Args: args(1, 1),
		RunE: func(c *cobra.Command, a []string) error {
			spec, fields, err := s.spec(c, std)
			if err != nil {
				return err
			}
			for _, field := range reset {
				if slices.Contains(fields, field) {
					return usagef("--reset %s: it is given, too", field)
				}
			}
			fields = append(fields, reset...)
			if len(fields) == 0 {
				return usagef("nothing to change is given")
			}
			return endpointUpdate(c.Context(), std, o, &egressv1.UpdateEndpointRequest{
				Id: a[0], Spec: spec, UpdateMask: &fieldmaskpb.FieldMask{Paths: fields},
			})
		},
	}
	o.register(c)
	s.register(c)
	c.Flags().StringSliceVar(&reset, "reset", nil, "take these `FIELDS` back to their default: event_types, headers, owner, policy, or one of it such as policy.timeout")
	return c
}

func endpointUpdate(ctx context.Context, std stdio, o endpointOptions, req *egressv1.UpdateEndpointRequest) error {
	client, err := o.admin.connect()
	if err != nil {
		return err
	}
	res, err := call(ctx, client, client.egress.UpdateEndpoint, req)
	if err != nil {
		return err
	}
	if o.format.structured() {
		return o.format.print(std.out, res)
	}
	return printEndpoint(std.out, res.GetEndpoint())
}
