package config

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/sidehook/sidehook/egress/netguard"
	configv1 "github.com/sidehook/sidehook/pb/sidehook/config/v1"
)

// maxCAFileBytes bounds a file of certificates; all public authorities together take a fifth of it.
const maxCAFileBytes = 1 << 20

// filter compiles m, which stands at path. wider is what it widens, nil for egress.filter itself; the result of both is
// for one endpoint alone.
func (l *loader) filter(path string, m *configv1.AddressFilter, wider *netguard.Config) (netguard.Config, *netguard.Filter) {
	c := netguard.Config{
		Allow:      l.prefixes(path+".allow", m.GetAllow()),
		Deny:       l.prefixes(path+".deny", m.GetDeny()),
		AllowNames: m.GetAllowNames(),
		DenyNames:  m.GetDenyNames(),
		AllowHTTP:  m.GetAllowHttp(),
		NAT64:      m.GetAllowNat64(),
		Report:     m.GetEnforce() == configv1.Enforce_ENFORCE_REPORT,
		Proxy:      l.proxy(path+".proxy", m.GetProxy()),
		RootCAs:    l.roots(path+".ca_file", m.GetCaFile()),
		OnDenied:   l.onDenied,
	}
	for _, p := range m.GetPorts() {
		c.Ports = append(c.Ports, uint16(p))
	}
	if wider != nil {
		c = widen(*wider, c, m)
	}
	if l.failed(path) || wider != nil && l.failed("egress.filter") {
		return c, nil
	}
	f, err := netguard.New(c)
	if err != nil {
		for _, e := range unjoin(err) {
			l.errorf(path, "%v", e)
		}
		return c, nil
	}
	return c, f
}

// widen is the filter of one endpoint: what the global one lets through, and beside it what its own does.
func widen(global, own netguard.Config, m *configv1.AddressFilter) netguard.Config {
	c := own
	c.Allow = slices.Concat(global.Allow, own.Allow)
	c.Deny = slices.Concat(global.Deny, own.Deny)
	c.AllowNames = slices.Concat(global.AllowNames, own.AllowNames)
	c.DenyNames = slices.Concat(global.DenyNames, own.DenyNames)
	c.Ports = slices.Concat(global.Ports, own.Ports)
	c.AllowHTTP = global.AllowHTTP || own.AllowHTTP
	c.NAT64 = global.NAT64 || own.NAT64
	if m.GetEnforce() == configv1.Enforce_ENFORCE_UNSPECIFIED {
		c.Report = global.Report
	}
	if own.Proxy == nil {
		c.Proxy = global.Proxy
	}
	if own.RootCAs == nil {
		c.RootCAs = global.RootCAs
	}
	return c
}

// prefixes reads addresses and networks.
func (l *loader) prefixes(path string, list []string) []netip.Prefix {
	var all []netip.Prefix
	for i, s := range list {
		p, err := parsePrefix(s)
		if err != nil {
			l.errorf(fmt.Sprintf("%s[%d]", path, i), "%s: %v", quote(s), err)
			continue
		}
		all = append(all, p)
	}
	return all
}

func parsePrefix(s string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(s); err == nil {
		return netip.Prefix{}, fmt.Errorf("write how much of it counts, such as %s/%d for this address alone", a.WithZone(""), a.BitLen())
	}
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return netip.Prefix{}, errors.New("is no network; write one such as 10.1.0.0/16 or fd00:1::/48")
	}
	if p != p.Masked() {
		return netip.Prefix{}, fmt.Errorf("has bits beyond its length; is %s meant?", p.Masked())
	}
	return p, nil
}

// proxy compiles the forward proxy at path; nil for none.
func (l *loader) proxy(path string, m *configv1.ForwardProxy) *netguard.Proxy {
	if m == nil {
		return nil
	}
	u, err := url.Parse(m.GetUrl())
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.Opaque != "":
		l.errorf(path+".url", "is no URL of a proxy; write scheme, host and port, such as http://proxy.example:3128")
		return nil
	case u.User != nil:
		l.errorf(path+".url", "leave user and password out; write authorization: {file: …}")
		return nil
	case strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "":
		l.errorf(path+".url", "leave path, query and fragment out")
		return nil
	}
	if m.GetCaFile() != "" && u.Scheme != "https" {
		l.errorf(path+".ca_file", "has no effect on a proxy that is spoken to by http; remove it")
	}
	p := &netguard.Proxy{URL: u.Scheme + "://" + u.Host, ByName: m.GetByName(), RootCAs: l.roots(path+".ca_file", m.GetCaFile())}
	if m.GetAuthorization() != nil {
		if m.GetAuthorization().GetUntil() != nil {
			l.errorf(path+".authorization.until", "is for the secrets of a source or endpoint; remove it")
		}
		if s, ok := l.secret(path+".authorization", "the proxy", m.GetAuthorization()); ok {
			p.Authorization = string(s.Bytes())
		}
	}
	return p
}

// roots reads the certificates in the file at path and returns them beside the system's; nil for none.
func (l *loader) roots(path, file string) *x509.CertPool {
	pem := l.pemFile(path, file)
	if pem == nil {
		return nil
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool() // a system without any: then these are all
	}
	if !pool.AppendCertsFromPEM(pem) {
		l.errorf(path, "%s holds no certificate in PEM", quote(file))
		return nil
	}
	return pool
}

// pemFile reads a file of certificates. What is wrong is noted; nil where there is none to go on with.
func (l *loader) pemFile(path, file string) []byte {
	if file == "" {
		return nil
	}
	if !filepath.IsAbs(file) {
		l.errorf(path, "write an absolute path")
		return nil
	}
	if l.withoutSecrets {
		return nil // certificates stand where the secrets do
	}
	l.saw(file)
	info, err := os.Stat(file)
	switch {
	case err != nil:
		l.errorf(path, "%v", err)
		return nil
	case !info.Mode().IsRegular() || info.Size() > maxCAFileBytes:
		l.errorf(path, "%s is no file of at most %s", quote(file), formatSize(maxCAFileBytes))
		return nil
	}
	pem, err := os.ReadFile(file)
	if err != nil {
		l.errorf(path, "%v", err)
		return nil
	}
	return pem
}

// unjoin returns what errors.Join joined.
func unjoin(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	return []error{err}
}
